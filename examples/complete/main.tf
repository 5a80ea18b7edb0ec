# A tailnet on Headscale, an issuer, and one ingress with two https hosts and a TCP service. Its plan has every name.

terraform {
  required_version = ">= 1.11"
  required_providers {
    postern = {
      source = "posterndev/postern"
    }
  }
}

variable "endpoint" {
  description = "Where the agent's API is."
  type        = string
  default     = "unix:///run/postern/postern.sock"
}

variable "headscale_url" {
  description = "The server_url of Headscale."
  type        = string
}

variable "headscale_api_key" {
  description = "From `headscale apikeys create`. It is written to the agent, and in no plan or state."
  type        = string
  sensitive   = true
  ephemeral   = true
}

variable "headscale_api_key_version" {
  description = "Raise it with each new key."
  type        = number
  default     = 1
}

variable "targets" {
  description = "The address of each backend, as the agent's host reaches it."
  type = object({
    web      = string
    admin    = string
    postgres = string
  })
  default = {
    web      = "127.0.0.1:8080"
    admin    = "127.0.0.1:8081"
    postgres = "127.0.0.1:5432"
  }
}

variable "allow_from" {
  description = "Who is given access."
  type        = set(string)
  default     = ["autogroup:member"]
}

provider "postern" {
  endpoint  = var.endpoint
  workspace = "complete"
}

resource "postern_issuer" "apps" {
  name = "apps"
  ca   = { create = true }
}

resource "postern_tailnet" "corp" {
  name = "corp"

  headscale = {
    url                = var.headscale_url
    api_key_wo         = var.headscale_api_key
    api_key_wo_version = var.headscale_api_key_version
  }

  dns = {
    ingress_name_template  = "{name}-{namespace}.prod-1.tailnet.example.internal"
    ingress_alias_template = "{name}.prod-1.tailnet.example.internal"
  }

  policy         = { mode = "managed", allow_from_allowlist = ["group:*", "autogroup:member"] }
  default_issuer = postern_issuer.apps.name
}

resource "postern_ingress" "shop" {
  name       = "shop"
  namespace  = "shop-dev"
  tailnet    = postern_tailnet.corp.name
  allow_from = var.allow_from

  exposes = {
    web = {
      mode    = "http"
      alias   = true
      backend = { targets = [var.targets.web] }
    }
    admin = {
      mode      = "http"
      dns_label = "shop-admin"
      backend   = { targets = [var.targets.admin] }
    }
    postgres = {
      port    = 5432
      backend = { targets = [var.targets.postgres] }
    }
  }
}

output "urls" {
  description = "Known in the plan."
  value       = { for name, endpoint in postern_ingress.shop.endpoints : name => endpoint.url }
}

output "addresses" {
  description = "Known after the apply."
  value       = postern_ingress.shop.addresses
}

output "ca_certificate" {
  description = "What clients are to trust."
  value       = postern_issuer.apps.certificate_pem
}
