package main

// adminPolicy is what the tailnet's admin had before Postern came. Postern adds its entries and leaves every other byte.
const adminPolicy = `{
	// Shop developers and what they own. Ask ann before you change this.
	"groups": {"group:shop": ["dev@"]},
	"tagOwners": {
		"tag:ci": ["group:shop"], // runners
	},
	"grants": [
		{"src": ["tag:ci"], "dst": ["tag:ci"], "ip": ["*"]}, // runners talk to each other
	],
}
`

// configuration is what the user writes.
const configuration = `terraform {
  required_providers {
    postern = { source = "posterndev/postern" }
  }
}

variable "endpoint" { type = string }
variable "headscale_url" { type = string }
variable "headscale_api_key" {
  type      = string
  sensitive = true
}
variable "backends" { type = map(string) }

provider "postern" {
  endpoint = var.endpoint
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
    api_key_wo_version = 1
  }
  dns = {
    ingress_name_template  = "{name}.{namespace}.prod-1.example.internal"
    ingress_alias_template = "{name}.prod-1.example.internal"
  }
  policy         = { allow_from_allowlist = ["group:*", "autogroup:member"] }
  default_issuer = postern_issuer.apps.name
}

resource "postern_ingress" "shop" {
  name       = "shop"
  namespace  = "shop-dev"
  tailnet    = postern_tailnet.corp.name
  allow_from = ["group:shop"]
  exposes = {
    web      = { mode = "http", alias = true, backend = { targets = [var.backends["shop"]] } }
    admin    = { mode = "http", dns_label = "shop-admin", backend = { targets = [var.backends["shop-admin"]] } }
    postgres = { port = 5432, backend = { targets = [var.backends["postgres"]] } }
  }
}

output "urls" { value = { for name, e in postern_ingress.shop.endpoints : name => e.url } }
output "ca" { value = postern_issuer.apps.certificate_pem }
output "device" { value = postern_ingress.shop.magic_dns_name }
output "address" { value = tolist(postern_ingress.shop.addresses)[0] }
`
