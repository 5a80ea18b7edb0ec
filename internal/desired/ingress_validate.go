package desired

import (
	"fmt"
	"strconv"
)

// Validate implements Object.
func (in *Ingress) Validate() error {
	var f faults
	f.label(At("name"), in.Name)
	if in.Namespace != nil {
		f.label(At("namespace"), *in.Namespace)
	}
	f.label(At("tailnet"), in.Tailnet)
	if in.Hostname != nil {
		f.dnsLabel(At("hostname"), *in.Hostname)
	}
	for i, p := range in.AllowFrom {
		f.principal(At("allow_from").Index(i), p)
	}
	for i, tag := range in.Tags {
		f.tag(At("tags").Index(i), tag)
	}
	in.validateTLS(&f)
	in.validateExposes(&f)
	return f.err()
}

func (in *Ingress) validateTLS(f *faults) {
	if in.TLS != nil {
		at := At("tls")
		if in.TLS.Issuer != nil {
			f.label(at.Attribute("issuer"), *in.TLS.Issuer)
		}
		if in.TLS.Layout != nil {
			f.oneOf(at.Attribute("layout"), *in.TLS.Layout, LayoutPerHost, LayoutSingle)
		}
		if !in.mayHaveHTTP() {
			f.add(at, "", "tls is for http exposes, and there is none", "remove tls, or set mode = \"http\" on an expose")
		}
	}
	if Value(in.RedirectHTTP, false) && !in.mayHaveHTTP() {
		f.add(At("redirect_http"), "true", "the redirect goes to an http expose, and there is none",
			"remove redirect_http, or set mode = \"http\" on an expose")
	}
}

// mayHaveHTTP is HasHTTP, or true where a mode is not known yet.
func (in *Ingress) mayHaveHTTP() bool {
	for _, e := range in.Exposes {
		if !Known(string(e.EffectiveMode())) {
			return true
		}
	}
	return in.HasHTTP()
}

func (in *Ingress) validateExposes(f *faults) {
	at := At("exposes")
	if len(in.Exposes) == 0 {
		f.add(at, "", "an ingress exposes something", "add exposes = { web = { port = 8080, backend = { targets = [\"127.0.0.1:8080\"] } } }")
	}
	ports, labels := map[string]string{}, map[string]string{}
	if Value(in.RedirectHTTP, false) {
		ports["tcp/80"] = redirect
	}
	for _, name := range in.ExposeNames() {
		e := in.Exposes[name]
		at := at.Key(name)
		if err := labelRule(name); err != nil && Known(name) {
			f.add(at, name, "an expose's name follows the rule of names: "+err.Error(), "write it like web or postgres")
		}
		e.validate(f, at)
		in.claimPort(f, at, name, e, ports)
		in.claimLabel(f, at, name, e, labels)
	}
}

// redirect holds the port of the redirect among the names of exposes, none of which has an underscore.
const redirect = "redirect_http"

// claimPort refuses two exposes on one port. The http exposes share theirs.
func (in *Ingress) claimPort(f *faults, at Path, name string, e Expose, ports map[string]string) {
	port := e.EffectivePort()
	if port <= 0 || port > 65535 || !Known(string(e.EffectiveMode())) {
		return
	}
	id := e.Protocol() + "/" + strconv.FormatInt(port, 10)
	other, taken := ports[id]
	if !taken {
		ports[id] = name
		return
	}
	switch otherHTTP := in.Exposes[other].EffectiveMode() == ModeHTTP; {
	case e.EffectiveMode() == ModeHTTP && otherHTTP:
	case e.EffectiveMode() == ModeHTTP:
		// Its port is fixed, so the other is at fault, and that once however many http exposes there are.
		ports[id] = name
		f.port(At("exposes").Key(other), id, port, name, "pick another port")
	case otherHTTP || other == redirect:
		f.port(at, id, port, other, "pick another port")
	default:
		f.port(at, id, port, other, "give one of the two another port")
	}
}

func (f *faults) port(expose Path, id string, port int64, holder, remedy string) {
	if holder != redirect {
		holder = fmt.Sprintf("exposes[%q]", holder)
	}
	f.addf(expose.Attribute("port"), strconv.FormatInt(port, 10), remedy, "%s is already used by %s", id, holder)
}

// claimLabel refuses two http exposes with one name (N3). Without a dns_label an expose has the ingress's.
func (in *Ingress) claimLabel(f *faults, at Path, name string, e Expose, labels map[string]string) {
	label := Value(e.DNSLabel, in.Name)
	if e.EffectiveMode() != ModeHTTP || e.DNSLabel != nil && !Known(label) {
		return
	}
	if ascii, err := DNSLabel(label); err == nil {
		label = ascii
	}
	other, taken := labels[label]
	switch at := at.Attribute("dns_label"); {
	case !taken:
		labels[label] = name
	case e.DNSLabel == nil && in.Exposes[other].DNSLabel == nil:
		f.addf(at, "", "give this one a dns_label", "at most one http expose goes without a dns_label, and exposes[%q] does already", other)
	case e.DNSLabel == nil:
		f.addf(at, "", "give one of the two another dns_label",
			"without a dns_label this has the ingress's own name, and exposes[%q] has it as its dns_label", other)
	default:
		f.addf(at, label, "give this one another dns_label", "each http expose has its own name, and exposes[%q] has this one already", other)
	}
}

func (e Expose) validate(f *faults, at Path) {
	mode := e.EffectiveMode()
	if e.Mode != nil {
		f.oneOf(at.Attribute("mode"), string(mode), string(ModeTCP), string(ModeUDP), string(ModeHTTP))
	}
	if !Known(string(mode)) {
		e.Backend.validate(f, at.Attribute("backend"))
		return
	}
	e.validatePort(f, at, mode)
	if mode != ModeHTTP {
		if e.DNSLabel != nil {
			f.add(at.Attribute("dns_label"), *e.DNSLabel, "a name of its own is for http exposes", "remove it, or set mode = \"http\"")
		}
		if e.Alias != nil {
			f.add(at.Attribute("alias"), strconv.FormatBool(*e.Alias), "an alias is for http exposes", "remove it, or set mode = \"http\"")
		}
	} else if e.DNSLabel != nil {
		f.dnsLabel(at.Attribute("dns_label"), *e.DNSLabel)
	}
	if e.ProxyProtocol != nil {
		if mode != ModeTCP {
			f.add(at.Attribute("proxy_protocol"), *e.ProxyProtocol, "the PROXY protocol is for tcp exposes", "remove it, or set mode = \"tcp\"")
		} else {
			f.oneOf(at.Attribute("proxy_protocol"), *e.ProxyProtocol, "v1", "v2")
		}
	}
	e.Backend.validate(f, at.Attribute("backend"))
}

func (e Expose) validatePort(f *faults, at Path, mode Mode) {
	at = at.Attribute("port")
	switch {
	case mode == ModeHTTP && e.Port != nil && *e.Port != PortHTTPS:
		f.addf(at, strconv.FormatInt(*e.Port, 10), "leave port out", "an http expose is always on port %d", PortHTTPS)
	case mode == ModeHTTP:
	case e.Port == nil:
		f.addf(at, "", "add the port that peers dial, for example port = 5432", "a %s expose has a port", mode)
	case *e.Port < 1 || *e.Port > 65535:
		f.add(at, strconv.FormatInt(*e.Port, 10), "a port is a number from 1 to 65535", "pick the port that peers dial")
	}
}

func (b Backend) validate(f *faults, at Path) {
	at = at.Attribute("targets")
	if len(b.Targets) == 0 {
		f.add(at, "", "a backend has at least one target", "add targets = [\"127.0.0.1:8080\"]")
	}
	seen := map[string]int{}
	for i, target := range b.Targets {
		f.target(at.Index(i), target)
		if first, twice := seen[target]; twice && Known(target) {
			f.addf(at.Index(i), target, "remove one of them", "targets[%d] is the same target", first)
		}
		seen[target] = i
	}
}
