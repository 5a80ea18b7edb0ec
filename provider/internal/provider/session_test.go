package provider

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

// corp is a tailnet, and shop an ingress with one http expose.
func corp() *desired.Tailnet {
	return &desired.Tailnet{
		Name: "corp", Headscale: &desired.Headscale{URL: "https://headscale.example.internal", APIKeyFile: ptr("/etc/key")},
		DNS: &desired.TailnetDNS{IngressNameTemplate: ptr("{name}.zone.test")}, DefaultIssuer: ptr("apps"),
		Policy: &desired.TailnetPolicy{TagTemplate: ptr("tag:{name}-{namespace}")},
	}
}

func shop(name string) *desired.Ingress {
	return &desired.Ingress{
		Name: name, Tailnet: "corp", AllowFrom: []string{},
		Exposes: map[string]desired.Expose{"web": {Mode: ptr(desired.ModeHTTP), Backend: desired.Backend{Targets: []string{"127.0.0.1:8080"}}}},
	}
}

// labelled is shop with a label of its own, so that two can claim one name.
func labelled(name, label string) *desired.Ingress {
	in := shop(name)
	e := in.Exposes["web"]
	e.DNSLabel = &label
	in.Exposes["web"] = e
	return in
}

var brief = map[string]any{"timeouts": map[string]any{"create": "1s", "update": "1s", "delete": "1s"}}

func (c *core) ingress(in *desired.Ingress) tftypes.Value {
	return c.config("postern_ingress", in, brief)
}

// mustPlan plans and fails the test on an error.
func (p *process) mustPlan(kind, address string, config tftypes.Value) *plan {
	p.tb.Helper()
	out, err := p.plan(kind, address, config)
	if err != nil {
		p.tb.Fatalf("planning %s: %v", address, err)
	}
	return out
}

// mustApply plans and applies in two processes.
func (c *core) mustApply(kind, address string, config tftypes.Value) {
	c.tb.Helper()
	promised := c.open().mustPlan(kind, address, config)
	if err := c.open().apply(promised, config); err != nil {
		c.tb.Fatalf("applying %s: %v", address, err)
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; it should say %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

func wantWarning(t *testing.T, p *plan, parts ...string) {
	t.Helper()
	for _, w := range p.warnings {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(w, part)
		}
		if all {
			return
		}
	}
	t.Errorf("no warning says %q; there is %q", parts, p.warnings)
}

func attribute(t *testing.T, v tftypes.Value, name string) tftypes.Value {
	t.Helper()
	var parts map[string]tftypes.Value
	if err := v.As(&parts); err != nil {
		t.Fatal(err)
	}
	return parts[name]
}

// Without an agent a first plan works: it has the names, and one warning that says what was not checked (T1).
func TestPlanWithoutAgent(t *testing.T) {
	s := servertest.Start(t)
	c := newCore(t, s.Endpoint, "test")
	s.Stop()
	p := c.open()
	first := p.mustPlan("postern_tailnet", "postern_tailnet.corp", c.config("postern_tailnet", corp(), nil))
	wantWarning(t, first, "made without the agent", "Not checked: conflicts with names of other workspaces")
	second := p.mustPlan("postern_ingress", "postern_ingress.shop", c.ingress(shop("shop")))
	if len(second.warnings) > 0 {
		t.Errorf("the warning comes once, and there is %q", second.warnings)
	}
	if got := dump(attribute(t, second.value, "hosts")); got != "[shop.zone.test]" {
		t.Errorf("the plan shows hosts %s", got)
	}
	in := shop("lost")
	in.Tailnet = "nowhere"
	third := p.mustPlan("postern_ingress", "postern_ingress.lost", c.ingress(in))
	wantWarning(t, third, "tailnet", `"nowhere"`, "refer to postern_tailnet.<name>.name")
	if attribute(t, third.value, "dns_name").IsKnown() {
		t.Error("the name is known although the tailnet is not")
	}
	wantError(t, p.apply(second, c.ingress(shop("shop"))), "does not answer", "postern run", "POSTERN_ENDPOINT")
}

// An agent that goes away later leaves a plan of what did not change empty, and the refresh says that it did not look.
func TestPlanOfExistingWithoutAgent(t *testing.T) {
	s := servertest.Start(t)
	base(t, s)
	c := newCore(t, s.Endpoint, "test")
	c.mustApply("postern_ingress", "postern_ingress.shop", c.ingress(shop("shop")))
	s.Stop()
	p := c.open()
	warnings, err := p.refresh("postern_ingress", "postern_ingress.shop")
	if err != nil || len(warnings) != 1 {
		t.Errorf("the refresh says %q, %v", warnings, err)
	}
	out := p.mustPlan("postern_ingress", "postern_ingress.shop", c.ingress(shop("shop")))
	if before := c.states["postern_ingress.shop"].value; !out.value.Equal(before) {
		t.Errorf("the plan is not empty: %s became %s", dump(before), dump(out.value))
	}
}

// Two claims to one name inside a plan are an error, whichever is planned first, and also where one of the two is there
// already and stays as it is (N6).
func TestConflictsInsideAPlan(t *testing.T) {
	s := servertest.Start(t)
	base(t, s)
	c := newCore(t, s.Endpoint, "test")
	p := c.open()
	p.mustPlan("postern_ingress", "postern_ingress.a", c.ingress(labelled("a", "same")))
	_, err := p.plan("postern_ingress", "postern_ingress.b", c.ingress(labelled("b", "same")))
	wantError(t, err, "DNSNameConflict", `"same.zone.test"`, "ingress default/a", "dns_label", "this plan")

	c.mustApply("postern_ingress", "postern_ingress.a", c.ingress(labelled("a", "same")))
	p = c.open()
	out := p.mustPlan("postern_ingress", "postern_ingress.b", c.ingress(labelled("b", "same")))
	wantWarning(t, out, "DNSNameConflict", "same.zone.test", "ingress default/a", "deletes or renames")
	_, err = p.plan("postern_ingress", "postern_ingress.a", c.ingress(labelled("a", "same")))
	wantError(t, err, "DNSNameConflict", "keeps it in this plan", "ingress default/b")

	p = c.open() // the two change places, so to speak: the older gives the name up
	p.mustPlan("postern_ingress", "postern_ingress.b", c.ingress(labelled("b", "same")))
	p.mustPlan("postern_ingress", "postern_ingress.a", c.ingress(labelled("a", "other")))
}

// A name that another workspace holds is an error at plan.
func TestConflictWithAnotherWorkspace(t *testing.T) {
	s := servertest.Start(t)
	base(t, s)
	other := newCore(t, s.Endpoint, "other")
	other.mustApply("postern_ingress", "postern_ingress.a", other.ingress(labelled("a", "same")))
	c := newCore(t, s.Endpoint, "test")
	_, err := c.open().plan("postern_ingress", "postern_ingress.b", c.ingress(labelled("b", "same")))
	wantError(t, err, "DNSNameConflict", `"same.zone.test"`, `workspace "other"`)
	_, err = c.open().plan("postern_ingress", "postern_ingress.a", c.ingress(labelled("a", "x")))
	wantError(t, err, "exists already", `workspace "other"`, "terraform import postern_ingress.a default/a")
}

// What is literal and not there is a warning at plan, since it may be planned later, and refused at apply with the nearest
// name (T8). What is declared twice is refused at plan.
func TestReferencesAndDuplicates(t *testing.T) {
	s := servertest.Start(t)
	base(t, s)
	c := newCore(t, s.Endpoint, "test")
	in := shop("shop")
	in.Tailnet = "corb"
	out := c.open().mustPlan("postern_ingress", "postern_ingress.shop", c.ingress(in))
	wantWarning(t, out, `"corb"`, "there is corp", `did you mean "corp"`, "postern_tailnet.<name>.name")
	wantError(t, c.open().apply(out, c.ingress(in)), "Creating ingress default/shop", `"corb"`, "there is corp", `did you mean "corp"`)
	p := c.open()
	p.mustPlan("postern_ingress", "postern_ingress.a", c.ingress(shop("a")))
	_, err := p.plan("postern_ingress", "postern_ingress.again", c.ingress(labelled("a", "x")))
	wantError(t, err, "Declared twice", "ingress default/a")
}

// Templates that change after an ingress was planned with the old ones are refused: its names would not come true.
func TestTailnetPlannedAfterItsIngress(t *testing.T) {
	s := servertest.Start(t)
	declare(t, s.Client, &desired.Issuer{Name: "apps", CA: &desired.CAIssuer{Create: ptr(true)}})
	c := newCore(t, s.Endpoint, "test")
	c.mustApply("postern_tailnet", "postern_tailnet.corp", c.config("postern_tailnet", corp(), nil))
	p := c.open()
	p.mustPlan("postern_ingress", "postern_ingress.shop", c.ingress(shop("shop")))
	changed := corp()
	changed.DNS.IngressNameTemplate = ptr("{name}.other.test")
	_, err := p.plan("postern_tailnet", "postern_tailnet.corp", c.config("postern_tailnet", changed, nil))
	wantError(t, err, "default/shop", "tailnet = postern_tailnet.<name>.name")
}

// What the control plane cannot do is an error at plan, or a warning where it is worth no more (P10).
func TestControlPlaneLacks(t *testing.T) {
	s := servertest.Start(t)
	declare(t, s.Client, &desired.Issuer{Name: "apps", CA: &desired.CAIssuer{Create: ptr(true)}})
	c := newCore(t, s.Endpoint, "test")
	config := c.config("postern_tailnet", corp(), nil)
	lack := blueprint.Lack{ID: "policy-mode", Summary: "policy.mode is file", Detail: "set policy.mode: database", Refuse: true}
	s.SetFacts("corp", blueprint.Facts{Lacks: []blueprint.Lack{lack}})
	_, err := c.open().plan("postern_tailnet", "postern_tailnet.corp", config)
	wantError(t, err, "tailnet corp: policy.mode is file", "set policy.mode: database")
	lack.Refuse = false
	s.SetFacts("corp", blueprint.Facts{Lacks: []blueprint.Lack{lack}, Principals: &blueprint.Principals{Groups: []string{"group:shop"}}})
	p := c.open()
	wantWarning(t, p.mustPlan("postern_tailnet", "postern_tailnet.corp", config), "policy.mode is file")
	in := shop("shop")
	in.AllowFrom = []string{"group:shops"}
	_, err = p.plan("postern_ingress", "postern_ingress.shop", c.ingress(in))
	wantError(t, err, "allow_from", `"group:shops"`, `did you mean "group:shop"`)
	in.Name, in.AllowFrom = "shop2", []string{"tag:later"}
	wantWarning(t, p.mustPlan("postern_ingress", "postern_ingress.shop2", c.ingress(in)), "tag:later", "postern_ingress.<name>.tag")
}

// A narrower allow-list is refused at plan for an ingress that does not change itself (T1, P3).
func TestTailnetChangeThatRefusesItsIngress(t *testing.T) {
	s := servertest.Start(t)
	declare(t, s.Client, &desired.Issuer{Name: "apps", CA: &desired.CAIssuer{Create: ptr(true)}})
	c := newCore(t, s.Endpoint, "test")
	c.mustApply("postern_tailnet", "postern_tailnet.corp", c.config("postern_tailnet", corp(), nil))
	in := shop("shop")
	in.AllowFrom = []string{"group:shop"}
	c.mustApply("postern_ingress", "postern_ingress.shop", c.ingress(in))
	theirs := newCore(t, s.Endpoint, "other")
	foreign := shop("foreign")
	foreign.AllowFrom = []string{"group:x"}
	theirs.mustApply("postern_ingress", "postern_ingress.foreign", theirs.ingress(foreign))
	narrow := corp()
	narrow.Policy.AllowFromAllowlist = []string{"autogroup:member"}
	p := c.open()
	out := p.mustPlan("postern_tailnet", "postern_tailnet.corp", c.config("postern_tailnet", narrow, nil))
	wantWarning(t, out, "other workspaces", `ingress default/foreign of workspace "other"`, "group:x")
	_, err := p.plan("postern_ingress", "postern_ingress.shop", c.ingress(in))
	wantError(t, err, "allow_from", `"group:shop"`, "policy.allow_from_allowlist")
}

// What is in use by another workspace cannot be planned to end, and the agent refuses the rest (T8).
func TestDeletingWhatIsInUse(t *testing.T) {
	s := servertest.Start(t)
	declare(t, s.Client, &desired.Issuer{Name: "apps", CA: &desired.CAIssuer{Create: ptr(true)}})
	c := newCore(t, s.Endpoint, "test")
	c.mustApply("postern_tailnet", "postern_tailnet.corp", c.config("postern_tailnet", corp(), nil))
	c.mustApply("postern_ingress", "postern_ingress.shop", c.ingress(shop("shop")))
	wantError(t, c.open().destroy("postern_tailnet", "postern_tailnet.corp"), "in use by ingress default/shop")
	other := newCore(t, s.Endpoint, "other")
	other.mustApply("postern_ingress", "postern_ingress.b", other.ingress(shop("b")))
	wantError(t, c.open().destroy("postern_tailnet", "postern_tailnet.corp"), "tailnet corp is in use", "ingress default/b", `workspace "other"`)
}

// A caller that gives up does not leave the session without the agent for the next one.
func TestCallerThatGivesUp(t *testing.T) {
	s := servertest.Start(t)
	base(t, s)
	c := newCore(t, s.Endpoint, "test")
	p := c.open()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	config := c.ingress(shop("shop"))
	if _, err := p.planWith(gone, "postern_ingress", "postern_ingress.shop", config, kept{value: tftypes.NewValue(c.types["postern_ingress"], nil)}); err == nil {
		t.Error("a plan without a context succeeded")
	}
	if out := p.mustPlan("postern_ingress", "postern_ingress.shop", config); len(out.warnings) > 0 || attribute(t, out.value, "dns_name").IsNull() {
		t.Errorf("the next plan was made without the agent: %q", out.warnings)
	}
}

func wait(t *testing.T, what string, until func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !until(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within ten seconds", what)
		}
		time.Sleep(10 * time.Millisecond) // polling
	}
}

func document(t *testing.T, s *servertest.Server, name string) *api.Document {
	t.Helper()
	d, err := s.Client.Get(t.Context(), desired.Key{Kind: desired.KindIngress, Namespace: "default", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Terraform plans in parallel. Of many that claim one name one is planned, and each other is refused.
func TestParallelPlans(t *testing.T) {
	s := servertest.Start(t)
	base(t, s)
	c := newCore(t, s.Endpoint, "test")
	p := c.open()
	const many = 24
	refused := make(chan error, many)
	var all sync.WaitGroup
	for i := range many {
		name := fmt.Sprintf("shop-%d", i)
		config := c.ingress(labelled(name, "same"))
		all.Go(func() {
			_, err := p.planWith(t.Context(), kindIngress, "postern_ingress."+name, config, kept{value: tftypes.NewValue(c.types[kindIngress], nil)})
			refused <- err
		})
	}
	all.Wait()
	close(refused)
	failed := 0
	for err := range refused {
		if err != nil {
			wantError(t, err, "DNSNameConflict")
			failed++
		}
	}
	if failed != many-1 {
		t.Errorf("of %d claims to one name %d were refused", many, failed)
	}
}
