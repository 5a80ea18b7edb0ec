package desired

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func ptr[T any](v T) *T { return &v }

// golden has every field of every kind set.
func golden() map[Kind]Object {
	return map[Kind]Object{
		KindIssuer: &Issuer{
			Name: "apps", Namespace: ptr("shop-dev"),
			CA: &CAIssuer{Create: ptr(true), CertificateFile: ptr("/etc/postern/ca.pem"), KeyFile: ptr("/etc/postern/ca.key")},
		},
		KindTailnet: &Tailnet{
			Name: "corp",
			Headscale: &Headscale{
				URL: "https://headscale.example.internal", CAPEM: ptr("-----BEGIN CERTIFICATE-----"),
				APIKeyFile: ptr("/etc/postern/key"), APIKeyVersion: ptr(int64(1)),
			},
			DNS: &TailnetDNS{
				IngressNameTemplate:  ptr("{name}.{namespace}.example.internal"),
				IngressAliasTemplate: ptr("{name}.example.internal"), HostnameTemplate: ptr("ingress-{name}"),
			},
			Policy: &TailnetPolicy{
				Mode: ptr("managed"), AllowFromAllowlist: []string{"group:*"}, TagTemplate: ptr("tag:ingress-{name}"), AgentTag: ptr("tag:postern"),
			},
			DefaultIssuer: ptr("apps"),
		},
		KindIngress: &Ingress{
			Name: "shop", Namespace: ptr("shop-dev"), Tailnet: "corp", Hostname: ptr("shop"), AllowFrom: []string{"group:shop"},
			Tags: []string{"tag:internal-apps"}, TLS: &IngressTLS{Issuer: ptr("apps"), Layout: ptr("single")}, RedirectHTTP: ptr(true),
			Exposes: map[string]Expose{
				"db": {Mode: ptr(ModeTCP), Port: ptr(int64(5432)), ProxyProtocol: ptr("v2"), Backend: Backend{Targets: []string{"10.0.0.7:5432"}}},
				"web": {
					Mode: ptr(ModeHTTP), DNSLabel: ptr("www"), Alias: ptr(true), Backend: Backend{Targets: []string{"127.0.0.1:8080"}},
				},
			},
		},
	}
}

// What travels is written down: each kind's golden file is what it encodes to, and decodes to it.
func TestGoldenPairs(t *testing.T) {
	for _, info := range Kinds() {
		object := golden()[info.Kind]
		if object == nil {
			t.Errorf("kind %s has no golden object", info.Kind)
			continue
		}
		path := filepath.Join("testdata", string(info.Kind)+".json")
		encoded, err := json.MarshalIndent(object, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		encoded = append(encoded, '\n')
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(path, encoded, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(text, encoded) {
			t.Errorf("%s encodes to\n%s\nand not to its golden file; UPDATE_GOLDEN=1 writes it", info.Kind, encoded)
		}
		decoded, err := Decode(info.Kind, text)
		if err != nil || !reflect.DeepEqual(decoded, object) {
			t.Errorf("%s decodes to %+v: %v", info.Kind, decoded, err)
		}
	}
}

// Absent, empty and null are kept apart, since Terraform does.
func TestAbsentAndEmptyStayApart(t *testing.T) {
	for _, text := range []string{
		`{"name":"a","tailnet":"t","exposes":{}}`,
		`{"name":"a","tailnet":"t","allow_from":[],"exposes":{}}`,
		`{"name":"a","namespace":"","tailnet":"t","redirect_http":false,"exposes":{}}`,
	} {
		object, err := Decode(KindIngress, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(object)
		if err != nil || string(again) != text {
			t.Errorf("%s became %s: %v", text, again, err)
		}
	}
}
