package provider

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	tft "github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

// The same promise as TestWhatAPlanShowsComesTrue through the real Terraform, which itself refuses a plan or a state that
// differs from what was shown: random ingresses, some of whose values are known after apply only, and then changed ones.
func TestSampleOfPromisesForReal(t *testing.T) {
	needTerraform(t)
	s := servertest.Start(t)
	base(t, s)
	for seed := range 4 {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		g := &generator{r: r, core: newCore(t, s.Endpoint, "test")}
		tailnet := corp()
		tailnet.DNS.IngressAliasTemplate = nil
		var steps []tft.TestStep
		for range 2 {
			in := g.ingress(fmt.Sprintf("s%d", seed), tailnet)
			in.Namespace = nil // one object, that changes
			text := g.hcl(t, in)
			steps = append(steps, tft.TestStep{Config: text}, tft.TestStep{Config: text, ConfigPlanChecks: before(plancheck.ExpectEmptyPlan())})
		}
		tft.UnitTest(t, tft.TestCase{ProtoV6ProviderFactories: factories(s), Steps: steps})
	}
}

// hcl writes an ingress, and takes about a third of its values from resources that are applied before it.
func (g *generator) hcl(t *testing.T, in *desired.Ingress) string {
	t.Helper()
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	w := &writer{g: g}
	var body strings.Builder
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := w.expression(fields[name], name != "name" && name != "tailnet")
		if name == "allow_from" {
			value = "toset(" + value + ")"
		}
		fmt.Fprintf(&body, "  %s = %s\n", name, value)
	}
	return w.later.String() + "resource \"postern_ingress\" \"x\" {\n" + body.String() + "}\n"
}

type writer struct {
	g     *generator
	later strings.Builder
	n     int
}

func (w *writer) expression(v any, mayBeLater bool) string {
	var out string
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+" = "+w.expression(v[name], true))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, w.expression(e, true))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		out = fmt.Sprintf("%q", v)
	default:
		out = fmt.Sprint(v)
	}
	if !mayBeLater || !w.g.chance(35) {
		return out
	}
	w.n++
	fmt.Fprintf(&w.later, "resource \"terraform_data\" \"later%d\" {\n  input = %s\n}\n", w.n, out)
	return fmt.Sprintf("terraform_data.later%d.output", w.n)
}
