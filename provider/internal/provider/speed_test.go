package provider

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

// A thousand ingresses in one plan take less than ten seconds of the provider: a session recompiles what a plan touches.
func TestAThousandPlansInOneSession(t *testing.T) {
	s := servertest.Start(t)
	base(t, s)
	c := newCore(t, s.Endpoint, "test")
	const many = 1000
	configs := make([]tftypes.Value, many)
	for i := range configs {
		configs[i] = c.config("postern_ingress", &desired.Ingress{
			Name: fmt.Sprintf("shop-%d", i), Tailnet: "corp", AllowFrom: []string{"group:shop"},
			Exposes: map[string]desired.Expose{
				"web":   {Mode: ptr(desired.ModeHTTP), Backend: desired.Backend{Targets: []string{"127.0.0.1:8080"}}},
				"admin": {Mode: ptr(desired.ModeHTTP), DNSLabel: ptr(fmt.Sprintf("admin-%d", i)), Backend: desired.Backend{Targets: []string{"127.0.0.1:8081"}}},
				"pg":    {Port: ptr(int64(5432)), Backend: desired.Backend{Targets: []string{"127.0.0.1:5432"}}},
			},
		}, nil)
	}
	p, start := c.open(), time.Now()
	for i, config := range configs {
		if _, err := p.plan("postern_ingress", fmt.Sprintf("postern_ingress.shop[%d]", i), config); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(start)
	t.Logf("%d plans in %s, %s each", many, took, took/many)
	if limit := 10 * time.Second; took > limit && !testing.Short() {
		t.Errorf("%d plans took %s, more than %s", many, took, limit)
	}
}
