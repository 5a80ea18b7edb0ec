# The id is the issuer's name, or namespace/name where it has a namespace.
terraform import postern_issuer.apps apps
