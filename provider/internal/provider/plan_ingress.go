package provider

import (
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/provider/internal/tfx"
)

// planIngress shows the names that the session makes, and keeps what was observed where it cannot have changed. Where the
// tailnet is not known to anyone, an ingress that does not change keeps its names too, and others are known after apply.
func planIngress(p *tfx.Planning) map[string]attr.Value {
	in, ok := p.Object.(*desired.Ingress)
	if !ok {
		return nil
	}
	if p.Ingress == nil {
		return keptObservations(p, nil)
	}
	out := map[string]attr.Value{
		"dns_name": text(p.Ingress.DNSName), "tag": text(p.Ingress.Tag), "hosts": plannedHosts(p, in), "endpoints": plannedEndpoints(p, in),
	}
	for _, name := range []string{"dns_name", "tag", "hosts", "endpoints"} {
		p.Changes = p.Changes || p.Prior == nil || !out[name].Equal(p.Prior[name])
	}
	for name, v := range keptObservations(p, p.Ingress) {
		out[name] = v
	}
	return out
}

// keptObservations gives what stays over a change: the addresses as long as there is the node, its name as long as it asks
// for the same.
func keptObservations(p *tfx.Planning, now *blueprint.Ingress) map[string]attr.Value {
	out := map[string]attr.Value{}
	if p.Prior == nil {
		return out
	}
	if addresses, ok := p.Prior["addresses"].(types.List); ok && len(addresses.Elements()) > 0 {
		out["addresses"] = addresses
	}
	name, ok := p.Prior["magic_dns_name"].(types.String)
	if ok && now != nil && desired.Known(now.Hostname) && strings.HasPrefix(name.ValueString(), now.Hostname+".") {
		out["magic_dns_name"] = name
	}
	return out
}

// plannedHosts is the list of hosts. One that is not known leaves the order unknown, and so the list.
func plannedHosts(p *tfx.Planning, in *desired.Ingress) types.List {
	exposes := desired.At("exposes")
	if p.Unknown.Covers(exposes) {
		return types.ListUnknown(types.StringType)
	}
	for name, e := range in.Exposes {
		mode := e.EffectiveMode()
		if !desired.Known(string(mode)) || mode == desired.ModeHTTP && p.Unknown.Covers(exposes.Key(name).Attribute("alias")) {
			return types.ListUnknown(types.StringType)
		}
	}
	return texts(p.Ingress.Hosts)
}

func plannedEndpoints(p *tfx.Planning, in *desired.Ingress) types.Map {
	of := types.ObjectType{AttrTypes: endpointTypes}
	if p.Unknown.Covers(desired.At("exposes")) {
		return types.MapUnknown(of)
	}
	out := map[string]attr.Value{}
	for name, e := range in.Exposes {
		out[name] = plannedEndpoint(p, name, e)
	}
	return types.MapValueMust(of, out)
}

func plannedEndpoint(p *tfx.Planning, name string, e desired.Expose) types.Object {
	at, planned, mode := desired.At("exposes").Key(name), p.Ingress.Endpoints[name], e.EffectiveMode()
	unknownPort := mode != desired.ModeHTTP && p.Unknown.Covers(at.Attribute("port"))
	if !desired.Known(string(mode)) {
		return endpoint(types.StringUnknown(), types.ListUnknown(types.StringType), types.StringUnknown(), types.StringUnknown())
	}
	aliases, url := texts(planned.DNSAliases), text(planned.URL)
	// An alias that turns out to equal the name is left out, so without the name it is not known whether there is one.
	aliased := desired.Value(e.Alias, false) && !desired.Known(planned.DNSName)
	if mode == desired.ModeHTTP && (aliased || p.Unknown.Covers(at.Attribute("alias"))) {
		aliases = types.ListUnknown(types.StringType)
	}
	if unknownPort && planned.DNSName != "" {
		url = types.StringUnknown()
	}
	address := types.StringUnknown()
	if old, ok := priorAddress(p, name); ok && !unknownPort && (!p.Changes || strings.HasSuffix(old.ValueString(), ":"+strconv.FormatInt(planned.Port, 10))) {
		address = old
	}
	return endpoint(text(planned.DNSName), aliases, url, address)
}

// priorAddress is the address that an expose of this name has.
func priorAddress(p *tfx.Planning, name string) (types.String, bool) {
	endpoints, ok := p.Prior["endpoints"].(types.Map)
	if !ok {
		return types.String{}, false
	}
	old, ok := endpoints.Elements()[name].(types.Object)
	if !ok {
		return types.String{}, false
	}
	address, ok := old.Attributes()["address"].(types.String)
	return address, ok
}
