package provider

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	tft "github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

const (
	addrTailnet = "postern_tailnet.corp"
	addrIssuer  = "postern_issuer.apps"
	addrIngress = "postern_ingress.shop"
)

// scene is a whole configuration; replacements change it from step to step.
func scene(replacements ...string) string {
	return strings.NewReplacer(replacements...).Replace(`
resource "postern_tailnet" "corp" {
  name = "corp"
  headscale = {
    url                = "https://headscale.example.internal"
    api_key_wo         = "hskey-very-secret"
    api_key_wo_version = 1
  }
  dns = {
    ingress_name_template  = "{name}-{namespace}.prod-1.tailnet.example.internal"
    ingress_alias_template = "{name}.prod-1.tailnet.example.internal"
  }
  policy         = { allow_from_allowlist = ["group:*", "autogroup:member"] }
  default_issuer = postern_issuer.apps.name
}

resource "postern_issuer" "apps" {
  name = "apps"
  ca   = { create = true }
}

resource "postern_ingress" "shop" {
  name       = "shop"
  namespace  = "shop-dev"
  tailnet    = postern_tailnet.corp.name
  allow_from = ["group:shop"]
  exposes = {
    web      = { mode = "http", alias = true, backend = { targets = ["127.0.0.1:8080"] } }
    admin    = { mode = "http", dns_label = "shop-admin", backend = { targets = ["127.0.0.1:8081"] } }
    postgres = { port = 5432, backend = { targets = ["10.0.0.7:5432"] } }
  }
}
`)
}

func at(parts ...string) tfjsonpath.Path {
	p := tfjsonpath.New(parts[0])
	for _, part := range parts[1:] {
		p = p.AtMapKey(part)
	}
	return p
}

func planned(address string, p tfjsonpath.Path, v string) plancheck.PlanCheck {
	return plancheck.ExpectKnownValue(address, p, knownvalue.StringExact(v))
}

func before(checks ...plancheck.PlanCheck) tft.ConfigPlanChecks {
	return tft.ConfigPlanChecks{PreApply: checks}
}

func texts3(list ...string) knownvalue.Check {
	checks := make([]knownvalue.Check, len(list))
	for i, s := range list {
		checks[i] = knownvalue.StringExact(s)
	}
	return knownvalue.ListExact(checks)
}

func TestLifecycle(t *testing.T) {
	needTerraform(t)
	s := servertest.Start(t)
	const zone = ".prod-1.tailnet.example.internal"
	tft.UnitTest(t, tft.TestCase{ProtoV6ProviderFactories: factories(s), Steps: []tft.TestStep{
		{ // created; every name is known in the plan that creates the tailnet (N10)
			Config: scene(),
			ConfigPlanChecks: before(
				plancheck.ExpectResourceAction(addrIngress, plancheck.ResourceActionCreate),
				planned(addrIngress, at("dns_name"), "shop-shop-dev"+zone),
				planned(addrIngress, at("tag"), "tag:ingress-shop"),
				planned(addrIngress, at("id"), "shop-dev/shop"),
				plancheck.ExpectKnownValue(addrIngress, at("hosts"), texts3("shop-shop-dev"+zone, "shop-admin-shop-dev"+zone, "shop"+zone)),
				planned(addrIngress, at("endpoints", "web", "url"), "https://shop-shop-dev"+zone),
				plancheck.ExpectKnownValue(addrIngress, at("endpoints", "web", "dns_aliases"), texts3("shop"+zone)),
				planned(addrIngress, at("endpoints", "postgres", "url"), "tcp://shop-shop-dev"+zone+":5432"),
				plancheck.ExpectUnknownValue(addrIngress, at("endpoints", "web", "address")),
				plancheck.ExpectUnknownValue(addrIngress, at("addresses")),
				plancheck.ExpectUnknownValue(addrIngress, at("ready")),
			),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(addrIngress, at("ready"), knownvalue.Bool(true)),
				statecheck.ExpectKnownValue(addrIngress, at("magic_dns_name"), knownvalue.StringExact("ingress-shop."+servertest.BaseDomain)),
				statecheck.ExpectKnownValue(addrIngress, at("tls_not_after"), knownvalue.StringExact("2030-01-01T00:00:00Z")),
				statecheck.ExpectKnownValue(addrTailnet, at("server_version"), knownvalue.StringExact("0.29.2")),
				statecheck.ExpectKnownValue(addrIssuer, at("certificate_pem"), knownvalue.NotNull()),
			},
		},
		{Config: scene(), ConfigPlanChecks: before(plancheck.ExpectEmptyPlan())},
		{ // a backend changes: in place, and what cannot have changed stays known
			Config: scene("127.0.0.1:8080", "127.0.0.1:9090"),
			ConfigPlanChecks: before(
				plancheck.ExpectResourceAction(addrIngress, plancheck.ResourceActionUpdate),
				plancheck.ExpectResourceAction(addrTailnet, plancheck.ResourceActionNoop),
				planned(addrIngress, at("dns_name"), "shop-shop-dev"+zone),
				planned(addrIngress, at("magic_dns_name"), "ingress-shop."+servertest.BaseDomain),
				plancheck.ExpectKnownValue(addrIngress, at("addresses"), knownvalue.ListSizeExact(1)),
				plancheck.ExpectKnownValue(addrIngress, at("endpoints", "web", "address"), knownvalue.NotNull()),
				plancheck.ExpectUnknownValue(addrIngress, at("ready")),
			),
		},
		{ // the tailnet's template changes: the ingress, unchanged itself, is renamed in the same apply
			Config: scene("127.0.0.1:8080", "127.0.0.1:9090", "{name}-{namespace}.prod-1", "{name}-{namespace}.prod-2", "{name}.prod-1", "{name}.prod-2"),
			ConfigPlanChecks: before(
				plancheck.ExpectResourceAction(addrIngress, plancheck.ResourceActionUpdate),
				planned(addrIngress, at("dns_name"), "shop-shop-dev.prod-2.tailnet.example.internal"),
			),
			ConfigStateChecks: []statecheck.StateCheck{statecheck.ExpectKnownValue(addrIngress, at("ready"), knownvalue.Bool(true))},
		},
		{Config: scene(), ConfigPlanChecks: before(planned(addrIngress, at("dns_name"), "shop-shop-dev"+zone))},
		{ // what another changed is put right
			PreConfig:        func() { redirect(t, s) },
			Config:           scene(),
			ConfigPlanChecks: before(plancheck.ExpectResourceAction(addrIngress, plancheck.ResourceActionUpdate), planned(addrIngress, at("tailnet"), "corp")),
		},
		{ // what another deleted is created anew
			PreConfig:        func() { remove(t, s, desired.Key{Kind: desired.KindIngress, Namespace: "shop-dev", Name: "shop"}) },
			Config:           scene(),
			ConfigPlanChecks: before(plancheck.ExpectResourceAction(addrIngress, plancheck.ResourceActionCreate)),
		},
		{ResourceName: addrIngress, ImportState: true, ImportStateId: "shop-dev/shop", ImportStateVerify: true},
		{ResourceName: addrTailnet, ImportState: true, ImportStateId: "corp", ImportStateVerify: true},
		{ResourceName: addrIssuer, ImportState: true, ImportStateId: "apps", ImportStateVerify: true},
		{ResourceName: addrIngress, ImportState: true, ImportStateId: "nobody", ExpectError: regexp.MustCompile("there is no ingress default/nobody")},
		{ // another name is another object
			Config: scene(`name       = "shop"`, `name       = "store"`),
			ConfigPlanChecks: before(
				plancheck.ExpectResourceAction(addrIngress, plancheck.ResourceActionDestroyBeforeCreate),
				planned(addrIngress, at("tag"), "tag:ingress-store"),
			),
		},
		{Config: scene(`name       = "shop"`, `name       = "store"`), ConfigPlanChecks: before(plancheck.ExpectEmptyPlan())},
	}})
	if left, err := s.Client.List(context.Background(), desired.KindIngress); err != nil || len(left) > 0 {
		t.Errorf("after the destroy there is %v, %v", left, err)
	}
}

// redirect changes the ingress behind Terraform's back.
func redirect(t *testing.T, s *servertest.Server) {
	t.Helper()
	key := desired.Key{Kind: desired.KindIngress, Namespace: "shop-dev", Name: "shop"}
	d, err := s.Client.Get(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	o, err := d.Object()
	if err != nil {
		t.Fatal(err)
	}
	in, ok := o.Spec.(*desired.Ingress)
	if !ok {
		t.Fatalf("%T", o.Spec)
	}
	in.RedirectHTTP, in.AllowFrom = ptr(true), []string{"group:other", "group:shop"}
	spec, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.Update(context.Background(), key, api.Declaration{Spec: spec}, d.Revision); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, s *servertest.Server, key desired.Key) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Client.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.WaitGone(ctx, key); err != nil {
		t.Fatal(err)
	}
}
