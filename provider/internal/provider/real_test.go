package provider

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"context"

	tft "github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

// What is known of a partly unknown configuration is shown, whatever is not: through the real Terraform.
func TestPartlyUnknown(t *testing.T) {
	needTerraform(t)
	s := servertest.Start(t)
	base(t, s)
	const text = `
resource "terraform_data" "later" { input = "10.0.0.7:8080" }
resource "terraform_data" "http"  { input = "http" }
resource "terraform_data" "port"  { input = 5432 }
resource "terraform_data" "yes"   { input = true }
resource "terraform_data" "expose" {
  input = { port = 99, backend = { targets = ["127.0.0.1:99"] } }
}
resource "postern_ingress" "shop" {
  name       = "shop"
  tailnet    = "corp"
  allow_from = toset([terraform_data.later.id == "" ? "group:a" : "group:b"])
  exposes = {
    web   = { mode = "http", backend = { targets = [terraform_data.later.output] } }
    mode  = { mode = terraform_data.http.output, dns_label = "m", backend = { targets = ["127.0.0.1:1"] } }
    late  = { mode = "http", dns_label = "l-${substr(terraform_data.later.id, 0, 8)}", backend = { targets = ["127.0.0.1:1"] } }
    pg    = { port = terraform_data.port.output, backend = { targets = ["127.0.0.1:1"] } }
    whole = terraform_data.expose.output
  }
}
resource "postern_ingress" "keys" {
  name          = "keys"
  tailnet       = "corp"
  allow_from    = []
  redirect_http = terraform_data.yes.output
  exposes       = { for k in [terraform_data.http.output] : k => { mode = "http", backend = { targets = ["127.0.0.1:1"] } } }
}
`
	const keys = "postern_ingress.keys"
	tft.UnitTest(t, tft.TestCase{ProtoV6ProviderFactories: factories(s), Steps: []tft.TestStep{
		{
			Config: text,
			ConfigPlanChecks: before(
				planned(addrIngress, at("dns_name"), "shop.zone.test"), planned(addrIngress, at("tag"), "tag:ingress-shop"),
				planned(addrIngress, at("endpoints", "web", "url"), "https://shop.zone.test"),
				plancheck.ExpectUnknownValue(addrIngress, at("endpoints", "mode", "dns_name")),
				plancheck.ExpectUnknownValue(addrIngress, at("endpoints", "late", "url")),
				planned(addrIngress, at("endpoints", "pg", "dns_name"), "shop.zone.test"),
				plancheck.ExpectUnknownValue(addrIngress, at("endpoints", "pg", "url")),
				plancheck.ExpectUnknownValue(addrIngress, at("endpoints", "whole", "dns_name")),
				plancheck.ExpectUnknownValue(addrIngress, at("hosts")),
				planned(keys, at("dns_name"), "keys.zone.test"),
				plancheck.ExpectUnknownValue(keys, at("endpoints")), plancheck.ExpectUnknownValue(keys, at("hosts")),
			),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(addrIngress, at("endpoints", "pg", "url"), knownvalue.StringExact("tcp://shop.zone.test:5432")),
				statecheck.ExpectKnownValue(keys, at("hosts"), texts3("keys.zone.test")),
			},
		},
		{Config: text, ConfigPlanChecks: before(plancheck.ExpectEmptyPlan())},
	}})
}

// Errors as a user of the real Terraform reads them.
func TestErrorsAtPlan(t *testing.T) {
	needTerraform(t)
	s := servertest.Start(t)
	base(t, s)
	other := newCore(t, s.Endpoint, "other")
	other.mustApply(kindIngress, "postern_ingress.held", other.ingress(labelled("held", "taken")))
	for name, test := range map[string]struct {
		config string
		want   string
	}{
		"two claims": {`
resource "postern_ingress" "a" {
  name       = "a"
  tailnet    = "corp"
  allow_from = []
  exposes    = { web = { mode = "http", dns_label = "same", backend = { targets = ["127.0.0.1:1"] } } }
}
resource "postern_ingress" "b" {
  name       = "b"
  tailnet    = "corp"
  allow_from = []
  exposes    = { web = { mode = "http", dns_label = "same", backend = { targets = ["127.0.0.1:1"] } } }
}`, `(?s)DNSNameConflict.*exposes\["web"\].dns_label:\s+"same.zone.test".*claimed\s+this\s+name\s+first`},
		"another workspace's": {`
resource "postern_ingress" "a" {
  name       = "a"
  tailnet    = "corp"
  allow_from = []
  exposes    = { web = { mode = "http", dns_label = "taken", backend = { targets = ["127.0.0.1:1"] } } }
}`, `(?s)DNSNameConflict.*"taken.zone.test".*workspace\s+"other"`},
		"a bad value": {`
resource "postern_ingress" "a" {
  name       = "a"
  tailnet    = "corp"
  allow_from = ["group:ok", "10.0.0.1/8"]
  exposes    = { web = { mode = "http", backend = { targets = ["http://x:1"] } } }
}`, `(?s)Invalid targets.*exposes\["web"\].backend.targets\[0\]:\s+"http://x:1".*host:port\s+without\s+a\s+scheme`},
		"what is there": {`
resource "postern_ingress" "held" {
  name       = "held"
  tailnet    = "corp"
  allow_from = []
  exposes    = { web = { mode = "http", backend = { targets = ["127.0.0.1:1"] } } }
}`, `(?s)ingress default/held exists already.*terraform\s+import\s+postern_ingress.held\s+default/held`},
	} {
		t.Run(name, func(t *testing.T) {
			tft.UnitTest(t, tft.TestCase{ProtoV6ProviderFactories: factories(s), Steps: []tft.TestStep{
				{Config: test.config, PlanOnly: true, ExpectError: regexp.MustCompile(test.want)},
			}})
		})
	}
}

// A first plan works without an agent, through the real Terraform, and has the names.
func TestPlanWithoutAgentForReal(t *testing.T) {
	needTerraform(t)
	tft.UnitTest(t, tft.TestCase{ProtoV6ProviderFactories: factoriesFor("unix:///nowhere/postern.sock", "test"), Steps: []tft.TestStep{{
		Config: scene(), PlanOnly: true, ExpectNonEmptyPlan: true,
		ConfigPlanChecks: tft.ConfigPlanChecks{PostApplyPreRefresh: []plancheck.PlanCheck{
			planned(addrIngress, at("dns_name"), "shop-shop-dev.prod-1.tailnet.example.internal"),
		}},
	}}})
}

// A configuration of the provider that is known after apply only does not stop the plan of the first apply.
func TestProviderKnownAfterApply(t *testing.T) {
	needTerraform(t)
	s := servertest.Start(t)
	text := `
resource "terraform_data" "agent" { input = "` + s.Endpoint + `" }
provider "postern" {
  endpoint  = terraform_data.agent.output
  workspace = "test"
}
` + scene()
	tft.UnitTest(t, tft.TestCase{ProtoV6ProviderFactories: factories(s), Steps: []tft.TestStep{{
		Config:           text,
		ConfigPlanChecks: before(planned(addrIngress, at("dns_name"), "shop-shop-dev.prod-1.tailnet.example.internal")),
	}}})
}

// noSecret fails where a plan or a state, as JSON, has the secret.
type noSecret struct{}

var errSecret = errors.New("the secret is in it")

func (noSecret) CheckPlan(_ context.Context, q plancheck.CheckPlanRequest, a *plancheck.CheckPlanResponse) {
	a.Error = without(q.Plan)
}

func (noSecret) CheckState(_ context.Context, q statecheck.CheckStateRequest, a *statecheck.CheckStateResponse) {
	a.Error = without(q.State)
}

func without(v any) error {
	text, err := json.Marshal(v)
	if err == nil && strings.Contains(string(text), "hskey-very-secret") {
		return errSecret
	}
	return err
}

// The API key of a tailnet is in no plan and no state of the real Terraform, and the agent has it. The configuration, which
// a plan repeats, has it by a variable here, as a user's has.
func TestSecretForReal(t *testing.T) {
	needTerraform(t)
	s := servertest.Start(t)
	t.Setenv("TF_VAR_key", "hskey-very-secret")
	text := `
variable "key" {
  type      = string
  ephemeral = true
}
` + scene(`"hskey-very-secret"`, "var.key")
	tft.UnitTest(t, tft.TestCase{ProtoV6ProviderFactories: factories(s), Steps: []tft.TestStep{{
		Config:            text,
		ConfigPlanChecks:  before(noSecret{}),
		ConfigStateChecks: []statecheck.StateCheck{noSecret{}},
		Check: tft.ComposeTestCheckFunc(func(_ *terraform.State) error {
			got, err := s.Registry.Secret(context.Background(), desired.Key{Kind: desired.KindTailnet, Namespace: desired.NoNamespace, Name: "corp"}, desired.SecretAPIKey)
			if err == nil && got != "hskey-very-secret" {
				return errors.New("the agent has another key")
			}
			return err
		}),
	}}})
}
