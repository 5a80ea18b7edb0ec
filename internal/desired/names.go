package desired

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// The placeholders of a name template.
const (
	placeholderName      = "{name}"
	placeholderNamespace = "{namespace}"
)

// Limits of RFC 1123 and RFC 1035.
const (
	maxLabel   = 63
	maxDNSName = 253
)

var (
	labelPattern       = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	placeholderPattern = regexp.MustCompile(`\{[^{}]*\}`)
)

// mapping turns what a person types into what DNS holds: lower case, and IDNA where it is not ASCII (N9).
var mapping = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false))

// labelRule says why s cannot be an object's name; nil where it can.
func labelRule(s string) error {
	switch {
	case s == "":
		return errors.New("a name is needed")
	case len(s) > maxLabel:
		return fmt.Errorf("a name has at most %d characters, this one has %d", maxLabel, len(s))
	case !labelPattern.MatchString(s):
		return errors.New("a name has lower-case letters, digits and inner hyphens only (RFC 1123)")
	}
	return nil
}

// DNSName gives s as it stands in DNS: lower case, converted by IDNA where it is not ASCII. Its error says which rule of
// RFC 1123 is broken (N9).
func DNSName(s string) (string, error) {
	if strings.HasSuffix(s, ".") {
		return "", errors.New("a DNS name is written without a trailing dot")
	}
	name, err := mapping.ToASCII(s)
	if err != nil {
		// Of plain text the plain rule says more than IDNA's.
		if lower := strings.ToLower(s); !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) && dnsRule(lower) != nil {
			return "", dnsRule(lower)
		}
		return "", fmt.Errorf("a DNS name has valid IDNA labels: %w", err)
	}
	// What the mapping makes of text that is no UTF-8 does not map to itself.
	if again, err := mapping.ToASCII(name); err != nil || again != name {
		return "", errors.New("a DNS name has valid IDNA labels")
	}
	if err := dnsRule(name); err != nil {
		return "", err
	}
	return name, nil
}

// dnsRule says why name, in lower case and ASCII, cannot be a DNS name; nil where it can.
func dnsRule(name string) error {
	if len(name) > maxDNSName {
		return fmt.Errorf("a DNS name has at most %d octets, this one has %d", maxDNSName, len(name))
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return errors.New("a DNS name has no empty label")
		case len(label) > maxLabel:
			return fmt.Errorf("a DNS label has at most %d octets, %q has %d", maxLabel, label, len(label))
		case !labelPattern.MatchString(label):
			return fmt.Errorf("a DNS label has letters, digits and inner hyphens only (RFC 1123), %q has others", label)
		}
	}
	if last := strings.LastIndexByte(name, '.'); last >= 0 && strings.Trim(name[last:], ".0123456789") == "" {
		return errors.New("the last label of a DNS name has a letter (RFC 1123), or it would be read as an address")
	}
	return nil
}

// DNSLabel is DNSName for a single label.
func DNSLabel(s string) (string, error) {
	label, err := DNSName(s)
	if err != nil {
		return "", err
	}
	if strings.Contains(label, ".") {
		return "", errors.New("a label has no dot")
	}
	return label, nil
}

// Template makes a name from an ingress's name and namespace: "{name}-{namespace}.example.internal".
type Template string

// Render fills the template. The result is text to be checked by DNSName, or by the rule of what it names.
func (t Template) Render(name, namespace string) string {
	return strings.NewReplacer(placeholderName, name, placeholderNamespace, namespace).Replace(string(t))
}

// Zone is the part of a name template that no placeholder reaches: the labels after the last one that has one, as DNS
// holds them. It is empty where there is none.
func (t Template) Zone() string {
	zone, err := DNSName(t.zoneText())
	if err != nil {
		return ""
	}
	return zone
}

// zoneText is the zone as it is written.
func (t Template) zoneText() string {
	labels := strings.Split(string(t), ".")
	for i := len(labels) - 1; i >= 0; i-- {
		if strings.Contains(labels[i], "{") {
			labels = labels[i+1:]
			break
		}
	}
	return strings.Join(labels, ".")
}

// Ambiguous reports whether two namespaces can render the same name, because a label joins name and namespace (N8).
func (t Template) Ambiguous() bool {
	for label := range strings.SplitSeq(string(t), ".") {
		if strings.Contains(label, placeholderName) && strings.Contains(label, placeholderNamespace) {
			return true
		}
	}
	return false
}

// placeholderRule says why t cannot be a template of anything; nil where it can.
func (t Template) placeholderRule() error {
	for _, p := range placeholderPattern.FindAllString(string(t), -1) {
		if p != placeholderName && p != placeholderNamespace {
			return fmt.Errorf("a template has the placeholders %s and %s only, not %s", placeholderName, placeholderNamespace, p)
		}
	}
	if rest := placeholderPattern.ReplaceAllString(string(t), ""); strings.ContainsAny(rest, "{}") {
		return errors.New("a template's braces come in pairs")
	}
	if !strings.Contains(string(t), placeholderName) {
		return fmt.Errorf("a template contains %s, or every ingress would have one name", placeholderName)
	}
	return nil
}

// nameRule says why t cannot be a template of DNS names; nil where it can.
func (t Template) nameRule() error {
	if err := t.placeholderRule(); err != nil {
		return err
	}
	if t.zoneText() == "" {
		return errors.New("a name template ends in a zone: at least one label without a placeholder")
	}
	_, err := DNSName(t.Render("x", "x"))
	return err
}

// Within reports whether name is zone or lies below it.
func Within(name, zone string) bool {
	return name == zone || strings.HasSuffix(name, "."+zone)
}
