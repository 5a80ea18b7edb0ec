package provider

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/provider/internal/session"
)

// config is the provider block.
type config struct {
	Endpoint  types.String `tfsdk:"endpoint"`
	Token     types.String `tfsdk:"token"`
	CAPEM     types.String `tfsdk:"ca_pem"`
	CAFile    types.String `tfsdk:"ca_file"`
	Workspace types.String `tfsdk:"workspace"`
}

// Configure implements provider.Provider. It connects to nothing. Terraform configures a provider anew for each plan and
// each apply, so the session that it makes spans one of these.
func (p *Postern) Configure(ctx context.Context, q provider.ConfigureRequest, a *provider.ConfigureResponse) {
	var c config
	a.Diagnostics.Append(q.Config.Get(ctx, &c)...)
	if a.Diagnostics.HasError() {
		return
	}
	s := p.session(c, &a.Diagnostics)
	a.ResourceData, a.DataSourceData = s, s
}

func (p *Postern) session(c config, diags *diag.Diagnostics) *session.Session {
	if at, unknown := c.unknown(); unknown {
		const text = "it is known after apply only, so the agent cannot be asked yet"
		diags.AddAttributeWarning(path.Root(at), "The provider's configuration is not known yet", at+": "+text+
			". The plan goes on without the agent. Give a value that is known before, or apply in two steps with -target what it comes from.")
		return session.New(nil, errors.New("the provider's "+at+": "+text))
	}
	options := p.options(c, diags)
	if diags.HasError() {
		return session.New(nil, errors.New("the provider's configuration has errors"))
	}
	client, err := api.NewClient(options)
	if err != nil {
		diags.AddAttributeError(path.Root("endpoint"), "Invalid endpoint", err.Error()+".")
		return session.New(nil, err)
	}
	return session.New(client, nil)
}

func (c config) unknown() (attribute string, is bool) {
	for _, v := range []struct {
		name  string
		value types.String
	}{{"endpoint", c.Endpoint}, {"token", c.Token}, {"ca_pem", c.CAPEM}, {"ca_file", c.CAFile}, {"workspace", c.Workspace}} {
		if v.value.IsUnknown() {
			return v.name, true
		}
	}
	return "", false
}

// options applies the environment and the defaults.
func (p *Postern) options(c config, diags *diag.Diagnostics) api.Options {
	o := api.Options{
		Endpoint: cmp.Or(c.Endpoint.ValueString(), p.getenv("POSTERN_ENDPOINT"), "unix://"+api.DefaultSocket),
		Token:    cmp.Or(c.Token.ValueString(), p.getenv("POSTERN_TOKEN")),
		CAPEM:    c.CAPEM.ValueString(),
		Workspace: cmp.Or(c.Workspace.ValueString(), p.getenv("POSTERN_WORKSPACE"), p.getenv("TFC_WORKSPACE_NAME"),
			p.getenv("TF_WORKSPACE"), "default"),
		UserAgent: "terraform-provider-postern/" + p.version,
	}
	if !c.CAPEM.IsNull() && !c.CAFile.IsNull() {
		diags.AddAttributeError(path.Root("ca_file"), "Invalid ca_file", "\""+c.CAFile.ValueString()+
			"\": the agent's CA comes from one place, and ca_pem is set too; remove one of the two.")
		return o
	}
	file := cmp.Or(c.CAFile.ValueString(), p.getenv("POSTERN_CA_FILE"))
	if o.CAPEM != "" || file == "" {
		return o
	}
	text, err := os.ReadFile(file)
	if err != nil {
		diags.AddAttributeError(path.Root("ca_file"), "Invalid ca_file", err.Error()+
			". Name a file that Terraform's host has, with the agent's CA certificates in PEM (POSTERN_CA_FILE sets it too).")
	}
	o.CAPEM = string(text)
	return o
}
