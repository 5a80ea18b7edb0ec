package certs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNotFound is what a Storage answers with for what it does not hold.
var ErrNotFound = errors.New("there is no such certificate")

// Storage keeps issued pairs. It is expected to encrypt them. A nil value forgets.
type Storage interface {
	Read(ctx context.Context, id string) ([]byte, error)
	Write(ctx context.Context, id string, value []byte) error
	Names(ctx context.Context) ([]string, error)
}

// Request asks for a certificate.
type Request struct {
	// ID is stable; what was issued under it is found again by it.
	ID string
	// Issuer names the CA.
	Issuer string
	// Names has the subject first.
	Names []string
}

// Result is what came of a request. Both may be set: a pair that is still good, and why there is no newer one.
type Result struct {
	Pair *Pair
	Err  error
}

// Manager keeps the pairs of one ingress: it issues what is missing and renews what is due. It is not safe for concurrent use.
type Manager struct {
	storage Storage
	issuer  func(name string) (*CA, error)
	held    map[string]*held
	// failed counts, by request, the attempts since one succeeded.
	failed map[string]int
}

const (
	// firstRetry and longestRetry bound the back-off after a request that failed.
	firstRetry   = 30 * time.Second
	longestRetry = time.Hour
	// soonest is how soon the manager asks to be called again, whatever is due.
	soonest = time.Minute
)

// held is a pair as it is stored.
type held struct {
	Cert   []byte `json:"cert"`
	Key    []byte `json:"key"`
	Issuer string `json:"issuer"`
	pair   *Pair
}

// NewManager makes a manager that finds CAs by issuer.
func NewManager(s Storage, issuer func(name string) (*CA, error)) *Manager {
	return &Manager{storage: s, issuer: issuer, held: map[string]*held{}, failed: map[string]int{}}
}

// Reconcile brings about what is asked for, forgets what no longer is, and says when to come again: when the next pair is
// due, or sooner where something failed; zero where nothing is asked for. Each request stands alone.
func (m *Manager) Reconcile(ctx context.Context, requests []Request) (map[string]Result, time.Time) {
	now := time.Now()
	results := make(map[string]Result, len(requests))
	var next time.Time
	for _, r := range requests {
		pair, err := m.one(ctx, r, now)
		results[r.ID] = Result{Pair: pair, Err: err}
		if due := m.due(r.ID, pair, err, now); next.IsZero() || due.Before(next) {
			next = due
		}
	}
	m.forget(ctx, requests)
	return results, next
}

// due is when to look at a request again, and counts its failures.
func (m *Manager) due(id string, pair *Pair, err error, now time.Time) time.Time {
	if err == nil {
		delete(m.failed, id)
		if due := pair.RenewAt(); due.After(now.Add(soonest)) {
			return due
		}
		return now.Add(soonest)
	}
	const doublings = 10
	retry := min(firstRetry<<min(m.failed[id], doublings), longestRetry)
	m.failed[id]++
	return now.Add(retry)
}

// one gives the pair of a request: the one that is held, or a new one where that is missing, due, not as asked for, or not
// the CA's. A pair that is still good is served whatever goes wrong with the next.
func (m *Manager) one(ctx context.Context, r Request, now time.Time) (*Pair, error) {
	h, err := m.load(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	var usable *Pair
	if h != nil && Check(h.pair, r.Names, now) == nil && slices.Equal(h.pair.TLS.Leaf.DNSNames, r.Names) {
		usable = h.pair
	}
	fresh := usable != nil && now.Before(usable.RenewAt())
	ca, err := m.issuer(r.Issuer)
	switch {
	case err != nil && fresh:
		return usable, nil // nothing is due yet; that the issuer is out of order is told by the issuer's own condition
	case err != nil:
		return usable, fmt.Errorf("issuer %s: %w", r.Issuer, err)
	case fresh && h.Issuer == ca.Digest():
		return usable, nil
	case usable != nil && h.Issuer == ca.Digest() && !ca.NotAfter().After(usable.NotAfter):
		return usable, fmt.Errorf("issuer %s: its CA expires at %s, and the certificate for %s with it; make a new CA",
			r.Issuer, ca.NotAfter().Format(time.RFC3339), r.Names[0])
	}
	pair, err := ca.Issue(r.Names, now)
	if err == nil {
		err = m.save(ctx, r.ID, ca, pair)
	}
	if err != nil {
		return usable, err
	}
	return pair, nil
}

// load gives what is held under an id; nil where there is nothing, or nothing that can be read: that is issued anew.
func (m *Manager) load(ctx context.Context, id string) (*held, error) {
	if h, ok := m.held[id]; ok {
		return h, nil
	}
	value, err := m.storage.Read(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the certificate %s: %w", id, err)
	}
	h := new(held)
	if err := json.Unmarshal(value, h); err != nil {
		return nil, nil //nolint:nilerr // it is issued anew
	}
	if h.pair, err = ParsePair(h.Cert, h.Key); err != nil {
		return nil, nil //nolint:nilerr // it is issued anew
	}
	m.held[id] = h
	return h, nil
}

func (m *Manager) save(ctx context.Context, id string, ca *CA, pair *Pair) error {
	h := &held{Cert: pair.CertPEM, Key: pair.KeyPEM, Issuer: ca.Digest(), pair: pair}
	value, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encoding the certificate %s: %w", id, err)
	}
	if err := m.storage.Write(ctx, id, value); err != nil {
		return fmt.Errorf("storing the certificate %s: %w", id, err)
	}
	m.held[id] = h
	return nil
}

// forget removes what nobody asks for any more. What cannot be removed now is tried again the next time.
func (m *Manager) forget(ctx context.Context, requests []Request) {
	names, err := m.storage.Names(ctx)
	if err != nil {
		return
	}
	for _, id := range names {
		if slices.ContainsFunc(requests, func(r Request) bool { return r.ID == id }) {
			continue
		}
		if m.storage.Write(ctx, id, nil) == nil {
			delete(m.held, id)
			delete(m.failed, id)
		}
	}
}
