import {
  to = postern_issuer.apps
  id = "apps"
}
