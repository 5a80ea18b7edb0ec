package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/provider/internal/tfx"
)

func issuer() tfx.Kind {
	return tfx.Kind{
		Kind: desired.KindIssuer,
		Doc: "Where certificates come from. Without a namespace it serves every ingress that names it, and tailnets as `default_issuer`; " +
			"with one, the ingresses of that namespace.",
		Waits: map[string]desired.ConditionType{tfx.WaitReady: desired.Ready},
		Spec: map[string]schema.Attribute{
			"name": nameAttribute("issuer", "apps"),
			"namespace": schema.StringAttribute{
				Optional: true, PlanModifiers: []planmodifier.String{tfx.SameOr("")},
				MarkdownDescription: "The namespace that the issuer serves. Default: none, and it serves all. Another namespace replaces it.",
			},
			"ca": schema.SingleNestedAttribute{
				Optional:            true,
				MarkdownDescription: "How it issues; needed. A certificate authority whose key lies on the agent's host. Either `create = true`, or both files, or all three.",
				Attributes: map[string]schema.Attribute{
					"create": schema.BoolAttribute{
						Optional: true,
						MarkdownDescription: "Whether the agent makes the key and the certificate on first use. What is there is never overwritten. Without the " +
							"files it keeps them in its state directory. Default: `false`.",
					},
					"certificate_file": schema.StringAttribute{
						Optional:            true,
						MarkdownDescription: "The CA's certificate on the agent's host, in PEM, by its absolute path, for example `\"/etc/postern/ca.pem\"`. It comes with `key_file`.",
					},
					"key_file": schema.StringAttribute{
						Optional:            true,
						MarkdownDescription: "The CA's private key on the agent's host, in PEM, by its absolute path, for example `\"/etc/postern/ca.key\"`. It comes with `certificate_file`, and never leaves that host.",
					},
				},
			},
		},
		Computed: reported(map[string]schema.Attribute{
			"certificate_pem": schema.StringAttribute{
				Computed:            true,
				MarkdownDescription: "The CA's certificate in PEM, for clients to be told to trust.",
			},
		}, "an issuer has `Ready`"),
		Observe: func(d *api.Document) map[string]attr.Value {
			return report(d, map[string]attr.Value{"certificate_pem": text(d.Status.CertificatePEM)})
		},
	}
}
