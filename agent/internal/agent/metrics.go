package agent

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/posterndev/terraform-provider-postern/agent/internal/edge"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/registry"
)

// metrics are what Prometheus reads (A6). No label holds anything that a peer chose.
type metrics struct {
	gatherer    *prometheus.Registry
	connections *prometheus.GaugeVec
	bytes       *prometheus.CounterVec
	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	rejected    *prometheus.CounterVec
}

func newMetrics(objects *registry.Registry, version string) *metrics {
	m := &metrics{
		gatherer: prometheus.NewRegistry(),
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "postern_connections", Help: "Open connections and flows."}, []string{"ingress", "expose", "kind"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "postern_bytes_total", Help: "Bytes of closed connections and flows, as seen by peers."}, []string{"ingress", "expose", "kind", "direction"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "postern_http_requests_total", Help: "HTTP requests by status; 0 is a peer that left before there was one."}, []string{"ingress", "expose", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "postern_http_request_duration_seconds", Help: "Time from request to the end of its answer.", Buckets: prometheus.DefBuckets}, []string{"ingress", "expose"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "postern_rejected_total", Help: "Connections and requests that were refused, by reason."}, []string{"ingress", "expose", "reason"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "postern_build_info", Help: "1, with the agent's version.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.gatherer.MustRegister(m.connections, m.bytes, m.requests, m.duration, m.rejected, build, conditions{objects},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.gatherer, promhttp.HandlerOpts{})
}

// traffic gives an ingress's counters in the form that an edge takes.
func (m *metrics) traffic(ingress string) edge.Metrics {
	return edge.Metrics{
		Opened: func(expose, kind string) { m.connections.WithLabelValues(ingress, expose, kind).Inc() },
		Closed: func(expose, kind string, received, sent int64) {
			m.connections.WithLabelValues(ingress, expose, kind).Dec()
			m.bytes.WithLabelValues(ingress, expose, kind, "received").Add(float64(received))
			m.bytes.WithLabelValues(ingress, expose, kind, "sent").Add(float64(sent))
		},
		Request: func(expose string, status int, _, _ int64, took time.Duration) {
			m.requests.WithLabelValues(ingress, expose, strconv.Itoa(status)).Inc()
			m.duration.WithLabelValues(ingress, expose).Observe(took.Seconds())
		},
		Rejected: func(expose, reason string) { m.rejected.WithLabelValues(ingress, expose, reason).Inc() },
	}
}

// conditions collects what is reported of every object, when it is asked.
type conditions struct{ objects *registry.Registry }

// collectTimeout bounds reading the objects for one scrape.
const collectTimeout = 5 * time.Second

func conditionDesc() *prometheus.Desc {
	return prometheus.NewDesc("postern_condition", "1 where the condition is true, 0 where it is false or unknown.",
		[]string{"kind", "id", "type", "reason"}, nil)
}

func expiryDesc() *prometheus.Desc {
	return prometheus.NewDesc("postern_certificate_not_after_seconds", "When the ingress's first certificate ends, in Unix time.", []string{"id"}, nil)
}

func (c conditions) Describe(descs chan<- *prometheus.Desc) {
	descs <- conditionDesc()
	descs <- expiryDesc()
}

func (c conditions) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	view, err := c.objects.View(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(conditionDesc(), err)
		return
	}
	for _, d := range view.Documents("") {
		for _, condition := range d.Status.Conditions {
			value := 0.0
			if condition.Status == desired.True && condition.Generation >= d.Revision {
				value = 1
			}
			out <- prometheus.MustNewConstMetric(conditionDesc(), prometheus.GaugeValue, value,
				string(d.Key.Kind), d.Key.ID(), string(condition.Type), string(condition.Reason))
		}
		if end := d.Status.TLSNotAfter; !end.IsZero() {
			out <- prometheus.MustNewConstMetric(expiryDesc(), prometheus.GaugeValue, float64(end.Unix()), d.Key.ID())
		}
	}
}
