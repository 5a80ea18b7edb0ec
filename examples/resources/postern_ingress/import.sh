# The id is namespace/name; "default" is the namespace of an ingress that sets none.
terraform import postern_ingress.shop shop-dev/shop
