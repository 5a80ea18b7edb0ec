package provider

import (
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

// BenchmarkThousandPlansInOneSession plans a thousand ingresses in one session, which recompiles what a plan touches and no
// more: a plan's share must not grow with their number.
func BenchmarkThousandPlansInOneSession(b *testing.B) {
	const many = 1000
	for b.Loop() {
		b.StopTimer()
		s := servertest.Start(b)
		base(b, s)
		c := newCore(b, s.Endpoint, "test")
		configs := make([]tftypes.Value, many)
		for i := range configs {
			configs[i] = c.config("postern_ingress", speedIngress(i), nil)
		}
		p := c.open()
		b.StartTimer()
		for i, config := range configs {
			if _, err := p.plan("postern_ingress", fmt.Sprintf("postern_ingress.shop[%d]", i), config); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/many*1e6, "µs/plan")
}

func speedIngress(i int) *desired.Ingress {
	return &desired.Ingress{
		Name: fmt.Sprintf("shop-%d", i), Tailnet: "corp", AllowFrom: []string{"group:shop"},
		Exposes: map[string]desired.Expose{
			"web":   {Mode: ptr(desired.ModeHTTP), Backend: desired.Backend{Targets: []string{"127.0.0.1:8080"}}},
			"admin": {Mode: ptr(desired.ModeHTTP), DNSLabel: ptr(fmt.Sprintf("admin-%d", i)), Backend: desired.Backend{Targets: []string{"127.0.0.1:8081"}}},
			"pg":    {Port: ptr(int64(5432)), Backend: desired.Backend{Targets: []string{"127.0.0.1:5432"}}},
		},
	}
}
