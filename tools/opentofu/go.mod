module github.com/posterndev/terraform-provider-postern/tools/opentofu

go 1.26.6

require github.com/opentofu/opentofu v1.12.6
