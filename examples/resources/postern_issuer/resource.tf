# The agent makes the CA on first use, and keeps its key.
resource "postern_issuer" "apps" {
  name = "apps"
  ca   = { create = true }
}

# What clients are to trust.
output "ca_certificate" {
  value = postern_issuer.apps.certificate_pem
}
