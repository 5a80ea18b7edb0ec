package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

func declaration(t *testing.T, o desired.Object) api.Declaration {
	t.Helper()
	spec, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return api.Declaration{Spec: spec}
}

func ptr[T any](v T) *T { return &v }

func TestDeclareWaitAndDelete(t *testing.T) {
	s := servertest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	issuer := &desired.Issuer{Name: "apps", CA: &desired.CAIssuer{Create: ptr(true)}}
	tailnet := &desired.Tailnet{Name: "corp", Headscale: &desired.Headscale{URL: "http://127.0.0.1:1", APIKeyFile: ptr("/k")},
		DNS: &desired.TailnetDNS{IngressNameTemplate: ptr("{name}.{namespace}.example.internal")}, DefaultIssuer: ptr("apps")}
	ingress := &desired.Ingress{Name: "shop", Tailnet: "corp", Exposes: map[string]desired.Expose{
		"web": {Mode: ptr(desired.ModeHTTP), Backend: desired.Backend{Targets: []string{"127.0.0.1:80"}}}}}
	if _, err := s.Client.Create(ctx, ingress.Key(), declaration(t, ingress)); !errors.Is(err, api.ErrUnacceptable) {
		t.Fatalf("ingress without its tailnet: %v", err)
	}
	for _, o := range []desired.Object{issuer, tailnet, ingress} {
		d, err := s.Client.Create(ctx, o.Key(), declaration(t, o))
		if err != nil {
			t.Fatal(err)
		}
		if d, err = s.Client.WaitFor(ctx, o.Key(), desired.Ready, d.Revision); err != nil {
			t.Fatalf("%s: %v %+v", o.Key(), err, d)
		}
	}
	d, err := s.Client.Get(ctx, ingress.Key())
	if err != nil || d.Ingress.DNSName != "shop.default.example.internal" {
		t.Fatalf("%+v %v", d, err)
	}
	if err := s.Client.Delete(ctx, tailnet.Key()); !errors.Is(err, api.ErrInUse) {
		t.Fatalf("deleting a tailnet in use: %v", err)
	}
	if err := s.Client.Delete(ctx, ingress.Key()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.WaitGone(ctx, ingress.Key()); err != nil {
		t.Fatal(err)
	}
}
