resource "postern_issuer" "apps" {
  name = "apps"
  ca   = { create = true }
}

resource "postern_tailnet" "corp" {
  name = "corp"

  headscale = {
    url          = "https://headscale.example.internal"
    api_key_file = "/etc/postern/headscale.key" # on the agent's host
  }

  dns            = { ingress_name_template = "{name}.{namespace}.tailnet.example.internal" }
  default_issuer = postern_issuer.apps.name
}

resource "postern_ingress" "shop" {
  name       = "shop"
  namespace  = "shop-dev"
  tailnet    = postern_tailnet.corp.name # a reference, so that names are known in the first plan
  allow_from = ["group:shop"]

  exposes = {
    web = {
      mode    = "http" # https://shop.shop-dev.tailnet.example.internal
      backend = { targets = ["127.0.0.1:8080"] }
    }
    admin = {
      mode      = "http"
      dns_label = "shop-admin"
      backend   = { targets = ["127.0.0.1:8081"] }
    }
    postgres = {
      port    = 5432
      backend = { targets = ["10.0.0.7:5432", "10.0.0.8:5432"] }
    }
  }

  timeouts = { create = "10m" }
}

# Known in the plan.
output "urls" {
  value = { for name, endpoint in postern_ingress.shop.endpoints : name => endpoint.url }
}
