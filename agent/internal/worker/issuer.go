package worker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/posterndev/terraform-provider-postern/agent/internal/certs"
	"github.com/posterndev/terraform-provider-postern/agent/internal/reconcile"
	"github.com/posterndev/terraform-provider-postern/agent/internal/status"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// issuer keeps a certificate authority ready for the ingresses.
type issuer struct {
	set *Set
	key desired.Key

	mu sync.Mutex
	// mu guards following
	ca  *certs.CA
	err error
}

func newIssuer(s *Set, key desired.Key) *issuer {
	return &issuer{set: s, key: key, err: errors.New("the issuer is not loaded yet")}
}

func (i *issuer) close(context.Context) {}

func (i *issuer) pass(ctx context.Context) error {
	view, err := i.set.deps.Registry.View(ctx)
	if err != nil {
		return err
	}
	d, ok := view.Document(i.key)
	object, _ := view.Compilation.Object(i.key)
	spec, isIssuer := object.Spec.(*desired.Issuer)
	if !ok || !isIssuer {
		return reconcile.ErrDone
	}
	ca, err := i.load(spec)
	i.mu.Lock()
	i.ca, i.err = ca, err
	i.mu.Unlock()
	report := status.Begin(i.set.deps.Registry, d)
	if err != nil {
		report.NotReady(desired.ReasonIssuerFailed, err.Error())
		return errors.Join(err, report.Commit(ctx))
	}
	report.Status.CertificatePEM = string(ca.CertificatePEM())
	return report.Commit(ctx)
}

// load reads the CA, and has it made on first use where that was asked for (C5, C6).
func (i *issuer) load(spec *desired.Issuer) (*certs.CA, error) {
	dir := filepath.Join(i.set.deps.Dir, "issuers", i.key.Namespace, i.key.Name)
	certificate := desired.Value(spec.CA.CertificateFile, filepath.Join(dir, "ca.pem"))
	key := desired.Value(spec.CA.KeyFile, filepath.Join(dir, "ca.key"))
	ca, err := certs.CAFromFiles(certificate, key, desired.Value(spec.CA.Create, false), time.Now())
	if err != nil {
		return nil, fmt.Errorf("loading the CA of %s: %w", i.key, err)
	}
	return ca, nil
}

// authority gives the CA, or why there is none.
func (i *issuer) authority() (*certs.CA, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ca, i.err
}

// authority finds the CA of an issuer by its key.
func (s *Set) authority(key desired.Key) (*certs.CA, error) {
	i, ok := find[*issuer](s, key)
	if !ok {
		return nil, fmt.Errorf("%s is not loaded yet", key)
	}
	return i.authority()
}
