package provider

import (
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/provider/internal/tfx"
)

var endpointTypes = map[string]attr.Type{
	"dns_name": types.StringType, "dns_aliases": types.ListType{ElemType: types.StringType}, "url": types.StringType, "address": types.StringType,
}

func ingress() tfx.Kind {
	return tfx.Kind{
		Kind: desired.KindIngress,
		Doc: "One identity on a tailnet, and what it exposes. `dns_name`, `hosts`, `tag` and the names in `endpoints` are known in the plan, also " +
			"in the one that creates the tailnet, as long as `tailnet` refers to it (`postern_tailnet.corp.name`).",
		Waits: map[string]desired.ConditionType{tfx.WaitReady: desired.Ready, "registered": desired.Registered},
		Spec: map[string]schema.Attribute{
			"name": nameAttribute("ingress", "shop"),
			"namespace": schema.StringAttribute{
				Optional: true, PlanModifiers: []planmodifier.String{tfx.SameOr(desired.DefaultNamespace)},
				MarkdownDescription: "The namespace, for example a team's: names are unique within it. Default: `\"default\"`. Another namespace replaces the ingress.",
			},
			"tailnet": schema.StringAttribute{
				Required: true, PlanModifiers: replaces(),
				MarkdownDescription: "The name of the `postern_tailnet`. Refer to the resource (`postern_tailnet.corp.name`) where one configuration has both. " +
					"Another tailnet replaces the ingress.",
			},
			"hostname": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "The MagicDNS label to ask the control plane for: one DNS label. Default: from the tailnet's `hostname_template`, " +
					"`\"ingress-{name}\"`. `dns_name` does not follow it.",
			},
			"allow_from": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Who is given access: groups, autogroups, tags, users, addresses, for example `[\"group:shop\"]`. It becomes a grant to " +
					"the ingress's tag and ports. Default and `[]`: no grant, so only rules that the policy has already let peers in.",
			},
			"tags": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Further tags for the node, for example `[\"tag:internal-apps\"]`, so that rules which exist already cover it. The policy " +
					"defines them. Default: none but the ingress's own `tag`.",
			},
			"tls": schema.SingleNestedAttribute{
				Optional:            true,
				MarkdownDescription: "The certificates of `http` exposes. Default: from the tailnet's `default_issuer`.",
				Attributes: map[string]schema.Attribute{
					"issuer": schema.StringAttribute{
						Optional: true,
						MarkdownDescription: "The name of the `postern_issuer`: the one of this namespace, else the one without. Default: the tailnet's " +
							"`default_issuer`.",
					},
					"layout": schema.StringAttribute{
						Optional:            true,
						MarkdownDescription: "`\"per-host\"`: a certificate for each host, so a fault stays with its host. `\"single\"`: one for all names. Default: `\"per-host\"`.",
					},
				},
			},
			"redirect_http": schema.BoolAttribute{
				Optional:            true,
				MarkdownDescription: "Whether port 80 answers with 308 to the same name over https. Default: `false`, and port 80 is closed.",
			},
			"exposes": exposesAttribute(),
		},
		Computed: ingressComputed(),
		Plan:     planIngress,
		Observe:  observeIngress,
	}
}

func exposesAttribute() schema.Attribute {
	return schema.MapNestedAttribute{
		Required:            true,
		MarkdownDescription: "What the ingress publishes, by a name of its own such as `web`. A change to one expose leaves the others alone.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"mode": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "`\"tcp\"` or `\"udp\"`: the port is passed through. `\"http\"`: https on port 443, TLS ended by the agent, several hosts to an " +
					"ingress. Default: `\"tcp\"`.",
			},
			"port": schema.Int64Attribute{
				Optional:            true,
				MarkdownDescription: "The port that peers dial, 1 to 65535; needed with `tcp` and `udp`, for example `5432`. `http` is on 443, and takes no other.",
			},
			"dns_label": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "`http` only: the label in place of `{name}` in the tailnet's template, for example `\"shop-admin\"`. Default: the ingress's " +
					"`dns_name`; one `http` expose of an ingress at most goes without.",
			},
			"alias": schema.BoolAttribute{
				Optional:            true,
				MarkdownDescription: "`http` only: whether the host has a second name too, from the tailnet's `ingress_alias_template`. Default: `false`.",
			},
			"proxy_protocol": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "`tcp` only: `\"v1\"` or `\"v2\"` has the agent send the PROXY protocol to the backend, so that it learns the peer's address. Default: off.",
			},
			"backend": schema.SingleNestedAttribute{
				Optional:            true,
				MarkdownDescription: "Needed: where the traffic goes, as the agent's host reaches it.",
				Attributes: map[string]schema.Attribute{
					"targets": schema.ListAttribute{
						Optional: true, ElementType: types.StringType,
						MarkdownDescription: "Needed: `host:port`, at least one, for example `[\"127.0.0.1:8080\"]`. Where there are several, they are balanced and those that " +
							"fail are skipped.",
					},
				},
			},
		}},
	}
}

func ingressComputed() map[string]schema.Attribute {
	list := func(doc string) schema.Attribute {
		return schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: doc}
	}
	str := func(doc string) schema.Attribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: doc}
	}
	return reported(map[string]schema.Attribute{
		"dns_name":       str("The ingress's DNS name, from the tailnet's `ingress_name_template`; null where it has none. Known in the plan."),
		"hosts":          list("Every host that `http` exposes publish, aliases included: `dns_name` first where it is one, then sorted. Known in the plan."),
		"tag":            str("The ingress's own tag, from the tailnet's `tag_template`. Known in the plan."),
		"magic_dns_name": str("The MagicDNS name as the control plane reports it, for example `ingress-shop.tail.example.internal`."),
		"addresses":      list("The node's addresses on the tailnet. They stay while the ingress is declared."),
		"served_hosts":   list("The hosts that were served when it was last read: one that is withdrawn is missing here and not in `hosts`."),
		"tls_not_after":  str("When the first of the certificates being served ends, in RFC 3339; null without `http` exposes. They are renewed long before."),
		"endpoints": schema.MapNestedAttribute{
			Computed:            true,
			MarkdownDescription: "How peers reach each expose, by its name in `exposes`.",
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"dns_name":    str("The DNS name. Known in the plan."),
				"dns_aliases": list("Further names, from `alias = true`; never null. Known in the plan."),
				"url":         str("`https://` and the host, or `tcp://` or `udp://` with `dns_name` and port. Known in the plan."),
				"address":     str("`address:port` on the tailnet."),
			}},
		},
	}, "an ingress has `Registered`, `PolicyReady`, `TLSReady`, `BackendsReachable` and `Ready`")
}

func observeIngress(d *api.Document) map[string]attr.Value {
	out := map[string]attr.Value{
		"magic_dns_name": text(d.Status.MagicDNSName),
		"addresses":      texts(d.Status.Addresses),
		"served_hosts":   texts(d.Status.ServedHosts),
		"tls_not_after":  types.StringNull(),
		"dns_name":       types.StringNull(),
		"tag":            types.StringNull(),
		"hosts":          texts([]string{}),
	}
	if !d.Status.TLSNotAfter.IsZero() {
		out["tls_not_after"] = types.StringValue(d.Status.TLSNotAfter.UTC().Format(time.RFC3339))
	}
	endpoints := map[string]attr.Value{}
	if in := d.Ingress; in != nil {
		out["dns_name"], out["tag"], out["hosts"] = text(in.DNSName), text(in.Tag), texts(in.Hosts)
		for name, e := range in.Endpoints {
			endpoints[name] = endpoint(text(e.DNSName), texts(e.DNSAliases), text(e.URL), text(d.Status.EndpointAddresses[name]))
		}
	}
	out["endpoints"] = types.MapValueMust(types.ObjectType{AttrTypes: endpointTypes}, endpoints)
	return report(d, out)
}

func endpoint(name types.String, aliases types.List, url, address types.String) types.Object {
	return types.ObjectValueMust(endpointTypes, map[string]attr.Value{"dns_name": name, "dns_aliases": aliases, "url": url, "address": address})
}
