package provider

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	tfconfig "github.com/hashicorp/terraform-plugin-testing/config"
	tft "github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

const examples = "../../../examples"

func example(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every example is applied, and its second plan is empty (T6).
func TestExamples(t *testing.T) {
	needTerraform(t)
	t.Setenv("TF_ACC_PROVIDER_NAMESPACE", "posterndev")
	for _, info := range desired.Kinds() {
		name := "postern_" + string(info.Kind)
		t.Run(name, func(t *testing.T) {
			s := servertest.Start(t)
			provider := strings.ReplaceAll(example(t, "provider/provider.tf"), "unix:///run/postern/postern.sock", s.Endpoint)
			applyExample(t, s, provider+example(t, "resources/"+name+"/resource.tf"),
				tfconfig.Variables{"headscale_api_key": tfconfig.StringVariable("hskey-secret")}, imports(t, name))
		})
	}
	t.Run("data postern_ingress", func(t *testing.T) {
		s := servertest.Start(t)
		base(t, s)
		in := shop("shop")
		in.Namespace = ptr("shop-dev")
		declare(t, s.Client, in)
		provider := strings.ReplaceAll(example(t, "provider/provider.tf"), "unix:///run/postern/postern.sock", s.Endpoint)
		applyExample(t, s, provider+example(t, "data-sources/postern_ingress/data-source.tf"), nil,
			tft.TestCheckOutput("shop_url", "https://shop.zone.test"))
	})
	t.Run("complete", func(t *testing.T) {
		s := servertest.Start(t)
		applyExample(t, s, example(t, "complete/main.tf"), tfconfig.Variables{
			"endpoint": tfconfig.StringVariable(s.Endpoint), "headscale_url": tfconfig.StringVariable("https://headscale.test"),
			"headscale_api_key": tfconfig.StringVariable("hskey-secret"),
		}, tft.TestCheckResourceAttr(addrIngress, "endpoints.web.url", "https://shop-shop-dev.prod-1.tailnet.example.internal"))
	})
}

func applyExample(t *testing.T, s *servertest.Server, text string, variables tfconfig.Variables, check tft.TestCheckFunc) {
	t.Helper()
	tft.UnitTest(t, tft.TestCase{ProtoV6ProviderFactories: factories(s), Steps: []tft.TestStep{
		{Config: text, ConfigVariables: variables, Check: check},
		{Config: text, ConfigVariables: variables, ConfigPlanChecks: before(plancheck.ExpectEmptyPlan())},
	}})
}

var (
	importBlock   = regexp.MustCompile(`to = (\S+)\s+id = "([^"]+)"`)
	importCommand = regexp.MustCompile(`(?m)^terraform import (\S+) (\S+)$`)
)

// imports checks that the examples of importing name the object that the example declares.
func imports(t *testing.T, name string) tft.TestCheckFunc {
	t.Helper()
	block := importBlock.FindStringSubmatch(example(t, "resources/"+name+"/import-by-string-id.tf"))
	command := importCommand.FindStringSubmatch(example(t, "resources/"+name+"/import.sh"))
	if block == nil || command == nil {
		t.Fatalf("%s: the examples of importing cannot be read", name)
	}
	return func(state *terraform.State) error {
		for _, found := range [][]string{block, command} {
			r := state.RootModule().Resources[found[1]]
			if r == nil || r.Primary.ID != found[2] {
				return fmt.Errorf("%q imports %s, which the example does not declare", found[0], found[2])
			}
		}
		return nil
	}
}
