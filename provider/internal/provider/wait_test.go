package provider

import (
	"context"
	"encoding/json"
	"regexp"
	"testing"

	tft "github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

// base declares a tailnet and an issuer by the API, so that a test is about the ingress alone.
func base(t testing.TB, s *servertest.Server) {
	t.Helper()
	declare(t, s.Client, &desired.Issuer{Name: "apps", CA: &desired.CAIssuer{Create: ptr(true)}})
	declare(t, s.Client, &desired.Tailnet{
		Name: "corp", Headscale: &desired.Headscale{URL: "https://headscale.example.internal", APIKeyFile: ptr("/etc/key")},
		DNS:           &desired.TailnetDNS{IngressNameTemplate: ptr("{name}.zone.test")},
		DefaultIssuer: ptr("apps"),
	})
}

func ptr[T any](v T) *T { return &v }

const justIngress = `
resource "postern_ingress" "shop" {
  name       = "shop"
  tailnet    = "corp"
  allow_from = []
  exposes    = { web = { mode = "http", backend = { targets = ["127.0.0.1:8080"] } } }
  timeouts   = { create = "2s", update = "2s", delete = "2s" }
}
`

// A wait that runs out fails the apply, with each condition that is false; the state is kept, and the next apply goes on
// with the same object, although Terraform calls it tainted (R4).
func TestWaitRunsOutOnCreate(t *testing.T) {
	needTerraform(t)
	s := servertest.Start(t)
	base(t, s)
	s.AutoReady(false)
	key := desired.Key{Kind: desired.KindIngress, Namespace: "default", Name: "shop"}
	var created int64
	tft.UnitTest(t, tft.TestCase{ProtoV6ProviderFactories: factories(s), Steps: []tft.TestStep{
		{
			Config:      justIngress,
			ExpectError: regexp.MustCompile(`(?s)ingress default/shop is not ready.*Registered is False, ControlPlaneAway: the control\s+plane does not answer; start it.*kept in the\s+state`),
		},
		{
			PreConfig: func() {
				d, err := s.Client.Get(context.Background(), key)
				if err != nil {
					t.Fatal(err)
				}
				created = d.Created
				s.AutoReady(true)
			},
			Config:            justIngress,
			ConfigPlanChecks:  before(plancheck.ExpectResourceAction(addrIngress, plancheck.ResourceActionDestroyBeforeCreate)),
			ConfigStateChecks: []statecheck.StateCheck{statecheck.ExpectKnownValue(addrIngress, at("ready"), knownvalue.Bool(true))},
		},
		{
			PreConfig: func() {
				d, err := s.Client.Get(context.Background(), key)
				if err != nil {
					t.Fatal(err)
				}
				if d.Created != created {
					t.Errorf("the ingress was replaced: created at revision %d, then at %d", created, d.Created)
				}
			},
			Config: justIngress, ConfigPlanChecks: before(plancheck.ExpectEmptyPlan()),
		},
	}})
	if _, err := s.Client.Get(context.Background(), key); err == nil {
		t.Error("the destroy at the end left the ingress")
	}
}

func declare(t testing.TB, c *api.Client, o desired.Object) *api.Document {
	t.Helper()
	spec, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.Create(context.Background(), o.Key(), api.Declaration{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
