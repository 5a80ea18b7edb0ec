# The id is the tailnet's name.
terraform import postern_tailnet.corp corp
