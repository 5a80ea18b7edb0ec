variable "headscale_api_key" {
  description = "From `headscale apikeys create`."
  type        = string
  sensitive   = true
}

resource "postern_tailnet" "corp" {
  name = "corp"

  headscale = {
    url                = "https://headscale.example.internal"
    api_key_wo         = var.headscale_api_key # never in plan or state
    api_key_wo_version = 1                     # raise it with each new key
  }

  dns = {
    ingress_name_template  = "{name}.{namespace}.tailnet.example.internal"
    ingress_alias_template = "{name}.tailnet.example.internal"
  }

  policy = {
    allow_from_allowlist = ["group:*", "autogroup:member"]
  }
}
