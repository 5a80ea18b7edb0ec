// Package provider is the Terraform provider of Postern: its configuration, and the resources and data sources with their
// documentation. How they work is tfx.
package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/posterndev/terraform-provider-postern/provider/internal/tfx"
)

// TypeName is what the names of resources begin with.
const TypeName = "postern"

// Postern is the provider.
type Postern struct {
	version string
	getenv  func(string) string
}

var _ provider.Provider = (*Postern)(nil)

// New makes the provider. getenv reads the environment.
func New(version string, getenv func(string) string) *Postern {
	return &Postern{version: version, getenv: getenv}
}

// Metadata implements provider.Provider.
func (p *Postern) Metadata(_ context.Context, _ provider.MetadataRequest, a *provider.MetadataResponse) {
	a.TypeName, a.Version = TypeName, p.version
}

// Schema implements provider.Provider.
func (p *Postern) Schema(_ context.Context, _ provider.SchemaRequest, a *provider.SchemaResponse) {
	a.Schema = schema.Schema{
		MarkdownDescription: "Puts services on a tailnet (Headscale). The provider talks to an agent, `postern run`, that runs beside the services; " +
			"the agent holds the control plane's credentials, so a Terraform runner never does.",
		Attributes: map[string]schema.Attribute{
			"endpoint": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Where the agent's API is: `unix:///path/to/socket` or `https://host:port`. " +
					"Default: `POSTERN_ENDPOINT`, else `unix:///run/postern/postern.sock`.",
			},
			"token": schema.StringAttribute{
				Optional: true, Sensitive: true,
				MarkdownDescription: "The bearer token that the agent knows this runner by; needed with `https://`. `postern token create` on the " +
					"agent's host makes one. Default: `POSTERN_TOKEN`.",
			},
			"ca_pem": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "The CA certificates, in PEM, that the agent's certificate is verified with. Default: those of `ca_file`, else the " +
					"host's roots. Not together with `ca_file`.",
			},
			"ca_file": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "A file with the CA certificates in PEM, in place of `ca_pem`. Default: `POSTERN_CA_FILE`.",
			},
			"workspace": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "The name under which this configuration declares its objects. Two configurations on one agent need two names, so that " +
					"neither takes over what the other declares. Default: `POSTERN_WORKSPACE`, `TFC_WORKSPACE_NAME`, `TF_WORKSPACE`, else `\"default\"`.",
			},
		},
	}
}

// kinds lists what differs from resource to resource.
func kinds() []tfx.Kind { return []tfx.Kind{tailnet(), ingress(), issuer()} }

// Resources implements provider.Provider.
func (p *Postern) Resources(context.Context) []func() resource.Resource {
	var out []func() resource.Resource
	for _, k := range kinds() {
		out = append(out, func() resource.Resource { return tfx.NewResource(k) })
	}
	return out
}

// DataSources implements provider.Provider.
func (p *Postern) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{func() datasource.DataSource {
		return tfx.NewDataSource(ingress(), "An ingress that is declared elsewhere.")
	}}
}
