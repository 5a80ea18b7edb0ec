# An ingress that another configuration declares.
data "postern_ingress" "shop" {
  name      = "shop"
  namespace = "shop-dev"
}

output "shop_url" {
  value = data.postern_ingress.shop.endpoints["web"].url
}
