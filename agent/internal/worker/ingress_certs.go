package worker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/posterndev/terraform-provider-postern/agent/internal/certs"
	"github.com/posterndev/terraform-provider-postern/agent/internal/edge"
	"github.com/posterndev/terraform-provider-postern/agent/internal/status"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// certResult is a certificate that was asked for, and what came of it.
type certResult struct {
	request blueprint.Certificate
	pair    *certs.Pair
	err     error
}

// certificates issues what is missing and renews what is due. next is when to do so again.
func (w *ingress) certificates(ctx context.Context, t *target) (map[string]certResult, time.Time) {
	requests := make([]certs.Request, 0, len(t.plan.Certificates))
	for _, c := range t.plan.Certificates {
		requests = append(requests, certs.Request{ID: c.ID, Issuer: c.Issuer.Path(), Names: c.Names})
	}
	results, next := w.manager.Reconcile(ctx, requests)
	out := map[string]certResult{}
	for _, c := range t.plan.Certificates {
		out[c.ID] = certResult{request: c, pair: results[c.ID].Pair, err: results[c.ID].Err}
	}
	return out, next
}

func certificatesByName(results map[string]certResult) map[string]*tls.Certificate {
	byName := map[string]*tls.Certificate{}
	for _, r := range results {
		if r.pair == nil {
			continue
		}
		for _, name := range r.request.Names {
			byName[name] = r.pair.TLS
		}
	}
	return byName
}

// reportTLS proves each served name by a handshake with the certificate being served (R2).
func (w *ingress) reportTLS(
	ctx context.Context, t *target, id *identity, s *edge.Snapshot, results map[string]certResult, report *status.Report,
) {
	report.Status.ServedHosts, report.Status.TLSNotAfter = nil, time.Time{}
	if !t.spec.HasHTTP() {
		report.NotNeeded(desired.TLSReady, "no http expose")
		return
	}
	var faults []string
	reason := desired.ReasonInvalidCertificate
	for _, key := range slices.Sorted(maps.Keys(results)) {
		r := results[key]
		if r.pair != nil && (report.Status.TLSNotAfter.IsZero() || r.pair.NotAfter.Before(report.Status.TLSNotAfter)) {
			report.Status.TLSNotAfter = r.pair.NotAfter
		}
		if r.err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", key, r.err))
			reason = desired.ReasonIssuerFailed
		}
		if r.pair == nil {
			continue
		}
		for _, name := range r.request.Names {
			if err := w.handshake(ctx, s, r, name); err != nil {
				faults = append(faults, err.Error())
				reason = desired.ReasonHandshakeFailed
			}
		}
	}
	serving, up := id.serving()
	if up {
		report.Status.ServedHosts = inOrder(t.plan.Hosts, serving.Hosts)
	}
	switch {
	case len(faults) > 0:
		report.False(desired.TLSReady, reason, strings.Join(faults, "; "))
	case len(results) == 0:
		report.False(desired.TLSReady, desired.ReasonPending, "no certificate can be asked for; what Ready says comes first")
	case !up:
		report.Unknown(desired.TLSReady, desired.ReasonStarting, "certificates are there; nothing listens until the node is up")
	default:
		report.True(desired.TLSReady, fmt.Sprintf("a handshake for each of %d names succeeded", len(s.HTTPS.Certificates)))
	}
}

func (w *ingress) handshake(ctx context.Context, s *edge.Snapshot, r certResult, name string) error {
	roots := x509.NewCertPool()
	ca, err := w.set.authority(r.request.Issuer)
	if err != nil {
		return nil //nolint:nilerr // the issuer's fault is told by its own condition; what was issued is still served
	}
	if !roots.AppendCertsFromPEM(ca.CertificatePEM()) {
		return errors.New("the issuer's certificate cannot be read")
	}
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.HTTPS.Certificates[name], nil }
	return certs.Handshake(ctx, get, name, roots, time.Now())
}

// inOrder gives those of all that are among some, in all's order.
func inOrder(all, some []string) []string {
	out := []string{}
	for _, name := range all {
		if slices.Contains(some, name) {
			out = append(out, name)
		}
	}
	return out
}
