package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/provider/internal/tfx"
)

func tailnet() tfx.Kind {
	return tfx.Kind{
		Kind: desired.KindTailnet,
		Doc: "A connection to one tailnet, and the rules for what is published on it: name templates, who may be given access, where " +
			"certificates come from. Ingresses refer to it by its name.",
		Probe: true,
		Waits: map[string]desired.ConditionType{tfx.WaitReady: desired.Ready},
		Spec: map[string]schema.Attribute{
			"name":      nameAttribute("tailnet", "corp"),
			"headscale": headscaleAttribute(),
			"dns":       dnsAttribute(),
			"policy":    policyAttribute(),
			"default_issuer": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "The name of the `postern_issuer`, one without a namespace, that certificates come from where an ingress names none. " +
					"Default: none, and then each ingress with an `http` expose names its own.",
			},
		},
		Computed: reported(map[string]schema.Attribute{
			"base_domain": schema.StringAttribute{
				Computed:            true,
				MarkdownDescription: "The MagicDNS base domain, as the control plane reports it, for example `tail.example.internal`.",
			},
			"server_version": schema.StringAttribute{
				Computed:            true,
				MarkdownDescription: "The control plane's version, as it reports it.",
			},
		}, "a tailnet has `Ready`"),
		Plan: planTailnet,
		Observe: func(d *api.Document) map[string]attr.Value {
			return report(d, map[string]attr.Value{
				"base_domain": text(d.Status.BaseDomain), "server_version": text(d.Status.Version),
			})
		},
	}
}

// planTailnet keeps what belongs to the control plane while that is the same.
func planTailnet(p *tfx.Planning) map[string]attr.Value {
	out := map[string]attr.Value{}
	is, ok := p.Object.(*desired.Tailnet)
	was, changed := p.Before.(*desired.Tailnet)
	if !ok || !changed || is.Headscale == nil || was.Headscale == nil || is.Headscale.URL != was.Headscale.URL {
		return out
	}
	for _, name := range []string{"base_domain", "server_version"} {
		if !p.Prior[name].IsNull() {
			out[name] = p.Prior[name]
		}
	}
	return out
}

func headscaleAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "The control plane; needed. The Headscale server, 0.29 or later, with `policy.mode: database`, and the API key that the agent uses there. " +
			"The key comes from `api_key_wo` or from `api_key_file`.",
		Attributes: map[string]schema.Attribute{
			"url": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "The server's `server_url`, for example `\"https://headscale.example.internal\"`.",
			},
			"ca_pem": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "CA certificates in PEM, and nothing else, that the server's certificate is verified with; at most 1 MiB. " +
					"Default: the roots of the agent's host.",
			},
			"api_key_file": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "A file on the agent's host that holds the API key, by its absolute path, for example " +
					"`\"/etc/postern/headscale.key\"`. It is read anew when it changes. Default: the key comes from `api_key_wo`.",
			},
			"api_key_wo": schema.StringAttribute{
				Optional: true, Sensitive: true, WriteOnly: true,
				MarkdownDescription: "The API key, from `headscale apikeys create`. It is write-only: neither plan nor state holds it, and the agent keeps it " +
					"encrypted. It is sent where the tailnet is new or `api_key_wo_version` changes.",
			},
			"api_key_wo_version": schema.Int64Attribute{
				Optional: true,
				MarkdownDescription: "The version of `api_key_wo`, needed with it, for example `1`. Raise it with each new key, since Terraform cannot see " +
					"the key change.",
			},
		},
	}
}

func dnsAttribute() schema.Attribute {
	const placeholders = " `{name}` and `{namespace}` stand for the ingress's."
	return schema.SingleNestedAttribute{
		Optional:            true,
		MarkdownDescription: "How names are made. Default: no DNS names, so `tcp` and `udp` exposes by MagicDNS name only.",
		Attributes: map[string]schema.Attribute{
			"ingress_name_template": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "The template of an ingress's `dns_name`, for example `\"{name}.{namespace}.tailnet.example.internal\"`." + placeholders +
					" It ends in a zone outside the MagicDNS base domain. A dot between name and namespace keeps two namespaces from rendering the " +
					"same name. Needed for `http` exposes. Default: none.",
			},
			"ingress_alias_template": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "The template of the second name that `alias = true` gives to an `http` expose, for example " +
					"`\"{name}.tailnet.example.internal\"`. It lies in the same zone as `ingress_name_template`. Default: none.",
			},
			"hostname_template": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "The template of the MagicDNS label that an ingress asks for where it sets no `hostname`." + placeholders +
					" Default: `\"ingress-{name}\"`.",
			},
		},
	}
}

func policyAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional:            true,
		MarkdownDescription: "How the agent keeps the tailnet's policy. It merges the entries that it owns into the document and leaves all others as they are. Default: `{ mode = \"managed\" }`, and any principal may be named.",
		Attributes: map[string]schema.Attribute{
			"mode": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "`\"managed\"`: the agent writes the grants and tag owners that ingresses need. This version has no other. Default: `\"managed\"`.",
			},
			"allow_from_allowlist": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "The principals, or patterns of them with `*`, that an ingress may name in `allow_from`, for example " +
					"`[\"group:*\", \"autogroup:member\"]`. Default: any. `[]`: none.",
			},
			"tag_template": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "The template of the tag that each ingress has for itself. `{name}` and `{namespace}` stand for the ingress's. Default: `\"tag:ingress-{name}\"`.",
			},
			"agent_tag": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "The tag that owns the ingresses' tags. Default: `\"tag:postern\"`.",
			},
		},
	}
}
