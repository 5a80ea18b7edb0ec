terraform {
  required_providers {
    postern = {
      source = "posterndev/postern"
    }
  }
}

# The agent on this host. Elsewhere: endpoint = "https://agent.example.internal:8443" with POSTERN_TOKEN in the environment.
provider "postern" {
  endpoint  = "unix:///run/postern/postern.sock"
  workspace = "shop"
}
