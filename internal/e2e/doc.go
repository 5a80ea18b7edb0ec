// Package e2e holds tests alone: stories of the whole chain, from Terraform to a peer's answer, with the real Terraform,
// agent and Headscale. Each story is a text file in testdata that reads without knowing Go.
package e2e
