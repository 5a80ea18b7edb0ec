package desired

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each rule of names, and what it says of a name that breaks it (N9).
func TestNameRules(t *testing.T) {
	long := strings.Repeat("a", 64)
	name := func(s string) error { _, err := DNSName(s); return err }
	label := func(s string) error { _, err := DNSLabel(s); return err }
	template := func(s string) error { return Template(s).nameRule() }
	for _, test := range []struct {
		rule       func(string) error
		text, want string
	}{
		{labelRule, "", "a name is needed"},
		{labelRule, long, "a name has at most 63 characters, this one has 64"},
		{labelRule, "Shop", "a name has lower-case letters, digits and inner hyphens only (RFC 1123)"},
		{labelRule, "a-", "a name has lower-case letters, digits and inner hyphens only (RFC 1123)"},
		{name, "a.example.", "a DNS name is written without a trailing dot"},
		{name, "a..b", "a DNS name has no empty label"},
		{name, "", "a DNS name has no empty label"},
		{name, long + ".b", `a DNS label has at most 63 octets, "` + long + `" has 64`},
		{name, strings.Repeat("a.", 127) + "a", "a DNS name has at most 253 octets, this one has 255"},
		{name, "a_b.c", `a DNS label has letters, digits and inner hyphens only (RFC 1123), "a_b" has others`},
		{name, "-a.c", `a DNS label has letters, digits and inner hyphens only (RFC 1123), "-a" has others`},
		{label, "a.b", "a label has no dot"},
		{label, "a b", `a DNS label has letters, digits and inner hyphens only (RFC 1123), "a b" has others`},
		{tagRule, "apps", "a tag is tag: and then letters, digits and hyphens, starting with a letter"},
		{template, "{namespace}.x", "a template contains {name}, or every ingress would have one name"},
		{template, "{name}.{}.x", "a template has the placeholders {name} and {namespace} only, not {}"},
		{template, "{{name}}.x", "a template's braces come in pairs"},
		{template, "{name.x", "a template's braces come in pairs"},
		{template, "x.{name}", "a name template ends in a zone: at least one label without a placeholder"},
		{template, "{name}.x.", "a DNS name is written without a trailing dot"},
		{serverURLRule, "ftp://a", "the URL starts with https:// (or http:// on one's own host)"},
		{serverURLRule, "https://:443", "the URL has a host"},
		{serverURLRule, "https://a?x", "the URL has no path, query or fragment"},
		{serverURLRule, "https://a#x", "the URL has no path, query or fragment"},
		{portRule, "65536", `a port is a number from 1 to 65535, not "65536"`},
		{portRule, "http", `a port is a number from 1 to 65535, not "http"`},
	} {
		if err := test.rule(test.text); err == nil || err.Error() != test.want {
			t.Errorf("%q:\n got %v\nwant %s", test.text, err, test.want)
		}
	}
	for _, good := range []string{"https://a", "https://a/", "http://127.0.0.1:8080", "https://[::1]:443"} {
		if err := serverURLRule(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}

func TestTag(t *testing.T) {
	if got, err := Tag("tag:internal-apps"); err != nil || got != "tag:internal-apps" {
		t.Errorf("%q: %v", got, err)
	}
	for _, bad := range []string{"", "tag:", "tag:1", "tag:a_b", "Tag:a", "tag:a ", "group:a"} {
		if got, err := Tag(bad); err == nil || got != "" {
			t.Errorf("%q is %q", bad, got)
		}
	}
}

func TestZones(t *testing.T) {
	for template, want := range map[Template]string{
		"{name}.{namespace}.Example.internal": "example.internal", "{name}-{namespace}.x": "x", "x-{name}": "", "a.{name}.b.c": "b.c",
		"{name}.café.example": "xn--caf-dma.example", Unknown: "", "{name}.a_b": "", "plain.example": "plain.example",
	} {
		if got := template.Zone(); got != want {
			t.Errorf("%s has zone %q, want %q", template, got, want)
		}
	}
}

func certificatePEM(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(2e9, 0)},
		&x509.Certificate{}, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// X7: a bundle holds certificates in PEM, and nothing else.
func TestBundles(t *testing.T) {
	good := certificatePEM(t)
	check := func(text string) string {
		var f faults
		f.certificates(At("ca_pem"), text)
		if err := f.err(); err != nil {
			return err.Error()
		}
		return ""
	}
	for _, text := range []string{good, good + good, "# Example CA\n" + good + "\n\n", Unknown} {
		if err := check(text); err != "" {
			t.Errorf("%q: %s", text, err)
		}
	}
	key := string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("x")}))
	const remedy = "; give the CA's certificates in PEM, and nothing else"
	for text, want := range map[string]string{
		"":                      "ca_pem: a bundle has at least one certificate, and this text has none" + remedy,
		"no PEM":                "ca_pem: a bundle has at least one certificate, and this text has none" + remedy,
		good + "x":              "ca_pem: after certificate 1 there is text that is no PEM" + remedy,
		good[:99] + "\n" + good: "ca_pem: a bundle has whole PEM blocks, and 1 of 2 cannot be read" + remedy,
		good + key:              "ca_pem: block 2 is of type \"EC PRIVATE KEY\", and a bundle holds certificates only" + remedy,
		good[:40] + "x":         "ca_pem: a bundle has whole PEM blocks, and 1 of 1 cannot be read" + remedy,
	} {
		if err := check(text); err != want {
			t.Errorf("%q:\n got %s\nwant %s", text, err, want)
		}
	}
	broken := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
	if err := check(good + broken); !strings.HasPrefix(err, "ca_pem: certificate 2 cannot be read: ") || !strings.HasSuffix(err, remedy) {
		t.Errorf("a certificate that cannot be read: %s", err)
	}
}

// What is not known yet makes no fault of what is known: of each text that is replaced, only its own attribute may complain.
func TestUnknownTextIsNoFaultOfOthers(t *testing.T) {
	count := 0
	for kind := range golden() {
		var before []string
		fields, _ := FieldErrors(golden()[kind].Validate())
		for _, field := range fields {
			before = append(before, field.Error())
		}
		texts := 0
		walkText(reflect.ValueOf(golden()[kind]), nil, func(Path, reflect.Value) { texts++ })
		for i := range texts {
			object, n, at := golden()[kind], 0, Path{}
			walkText(reflect.ValueOf(object), nil, func(path Path, v reflect.Value) {
				if n++; n == i+1 {
					v.SetString(Unknown)
					at = path
				}
			})
			count++
			fields, _ := FieldErrors(object.Validate())
			for _, field := range fields {
				if field.Path.String() != at.String() && !slices.Contains(before, field.Error()) {
					t.Errorf("%s: with %s not known, %s", kind, at, field)
				}
			}
		}
	}
	if count < 25 {
		t.Errorf("%d texts were replaced", count)
	}
}

// walkText visits all text of a spec, to be read or set.
func walkText(v reflect.Value, at Path, visit func(Path, reflect.Value)) {
	switch v.Kind() {
	case reflect.String:
		visit(at, v)
	case reflect.Pointer:
		if !v.IsNil() {
			walkText(v.Elem(), at, visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			walkText(v.Field(i), at.Attribute(v.Type().Field(i).Tag.Get("tfsdk")), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walkText(v.Index(i), at.Index(i), visit)
		}
	case reflect.Map:
		for _, key := range slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }) {
			inner := reflect.New(v.Type().Elem()).Elem()
			inner.Set(v.MapIndex(key))
			walkText(inner, at.Key(key.String()), visit)
			v.SetMapIndex(key, inner)
		}
	default:
	}
}
