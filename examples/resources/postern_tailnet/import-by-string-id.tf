import {
  to = postern_tailnet.corp
  id = "corp"
}
