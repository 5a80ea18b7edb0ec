import {
  to = postern_ingress.shop
  id = "shop-dev/shop"
}
