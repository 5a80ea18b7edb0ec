package desired

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// maxCABytes is the most that a bundle of CA certificates may have (X7).
const maxCABytes = 1 << 20

var (
	tagPattern       = regexp.MustCompile(`^tag:[a-zA-Z][a-zA-Z0-9-]*$`)
	selectorPattern  = regexp.MustCompile(`^(group|autogroup|ipset):[^\s:/@*]+$`)
	userPattern      = regexp.MustCompile(`^[^\s:@]+@[^\s:/@]*$`)
	hostAliasPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`)
)

func (f *faults) label(path Path, value string) {
	if !Known(value) {
		return
	}
	if err := labelRule(value); err != nil {
		f.add(path, value, err.Error(), "write it like shop or shop-1")
	}
}

func (f *faults) dnsLabel(path Path, value string) {
	if !Known(value) {
		return
	}
	if _, err := DNSLabel(value); err != nil {
		f.add(path, value, "InvalidDNSName: "+err.Error(), "write one label, like shop-admin")
	}
}

func (f *faults) template(path Path, value *string, rule func(Template) error, remedy string) {
	if value == nil || !Known(*value) {
		return
	}
	if err := rule(Template(*value)); err != nil {
		f.add(path, *value, err.Error(), remedy)
	}
}

func (f *faults) oneOf(path Path, value string, allowed ...string) {
	if !Known(value) {
		return
	}
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	f.add(path, value, "the value is one of "+strings.Join(allowed, ", "), "pick one of them")
}

func (f *faults) absoluteFile(path Path, value string) {
	if Known(value) && !strings.HasPrefix(value, "/") { // filepath has the rule of the provider's host, not of the agent's
		f.add(path, value, "a file on the agent's host is named by an absolute path", "start it with /")
	}
}

func (f *faults) tag(path Path, value string) {
	if !Known(value) {
		return
	}
	if err := tagRule(value); err != nil {
		f.add(path, value, err.Error(), "write it like tag:internal-apps")
	}
}

// Tag gives s where it can be a tag of a policy; its error says which rule is broken.
func Tag(s string) (string, error) {
	if err := tagRule(s); err != nil {
		return "", err
	}
	return s, nil
}

// tagRule says why s cannot be a tag; nil where it can.
func tagRule(s string) error {
	if !tagPattern.MatchString(s) {
		return errors.New("a tag is tag: and then letters, digits and hyphens, starting with a letter")
	}
	return nil
}

// principal checks one entry of allow_from: what a grant's src may hold.
func (f *faults) principal(path Path, value string) {
	if !Known(value) || value == "*" || selectorPattern.MatchString(value) || userPattern.MatchString(value) {
		return
	}
	if strings.HasPrefix(value, "tag:") {
		f.tag(path, value)
		return
	}
	if addr, err := netip.ParseAddr(value); err == nil && addr.Zone() == "" {
		return
	}
	if prefix, err := netip.ParsePrefix(value); err == nil {
		if prefix != prefix.Masked() {
			f.addf(path, value, "write "+prefix.Masked().String(), "a CIDR has no host bits set")
		}
		return
	}
	// Digits and dots alone would be an address, and here it is a wrong one.
	if hostAliasPattern.MatchString(value) && strings.Trim(value, "0123456789.") != "" {
		return
	}
	f.add(path, value, "a principal is a group, autogroup, tag, user, host, address or CIDR",
		"write it like group:shop, autogroup:member, tag:ci, ann@example.com or 100.64.0.7")
}

// certificates checks a bundle of CA certificates in PEM (X7).
func (f *faults) certificates(path Path, text string) {
	if !Known(text) {
		return
	}
	const remedy = "give the CA's certificates in PEM, and nothing else"
	if len(text) > maxCABytes {
		f.addf(path, "", remedy, "a bundle has at most %d bytes, this one has %d", maxCABytes, len(text))
		return
	}
	rest, n := []byte(text), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		n++
		if block.Type != "CERTIFICATE" {
			f.addf(path, "", remedy, "block %d is of type %q, and a bundle holds certificates only", n, block.Type)
			return
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			f.addf(path, "", remedy, "certificate %d cannot be read: %v", n, err)
			return
		}
	}
	// The decoder skips a block that it cannot read, and a CA would be missing without a word.
	switch blocks := strings.Count(text, "-----BEGIN "); {
	case blocks > n:
		f.addf(path, "", remedy, "a bundle has whole PEM blocks, and %d of %d cannot be read", blocks-n, blocks)
	case n == 0:
		f.add(path, "", "a bundle has at least one certificate, and this text has none", remedy)
	case strings.TrimSpace(string(rest)) != "":
		f.addf(path, "", remedy, "after certificate %d there is text that is no PEM", n)
	}
}

// target checks one address of a backend.
func (f *faults) target(path Path, value string) {
	if !Known(value) {
		return
	}
	if err := targetRule(value); err != nil {
		f.add(path, value, err.Error(), "write it like 127.0.0.1:8080 or shop.internal:8080")
	}
}

// targetRule says why s cannot be a backend's address; nil where it can.
func targetRule(s string) error {
	if strings.Contains(s, "://") {
		return errors.New("a target is host:port without a scheme")
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("a target is host:port, with an IPv6 address in brackets")
	}
	if err := portRule(port); err != nil {
		return err
	}
	if host == "" {
		return errors.New("a target names its host; 127.0.0.1 is the agent's own")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		switch {
		case ip.IsLinkLocalUnicast() || ip.IsMulticast():
			return errors.New("a target is no link-local or multicast address (cloud metadata lives there)")
		case ip.IsUnspecified():
			return errors.New("a target names its host; 127.0.0.1 is the agent's own")
		}
		return nil
	}
	_, err = DNSName(strings.TrimSuffix(host, "."))
	return err
}

func portRule(s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("a port is a number from 1 to 65535, not %q", s)
	}
	return nil
}
