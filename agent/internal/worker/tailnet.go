package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
	"github.com/posterndev/terraform-provider-postern/agent/internal/reconcile"
	"github.com/posterndev/terraform-provider-postern/agent/internal/status"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// keyTTL is how long a minted key is good for: it is used at once or never (P11).
const keyTTL = 5 * time.Minute

// tailnet keeps a tailnet's policy and knows its devices.
type tailnet struct {
	set  *Set
	key  desired.Key
	loop *reconcile.Loop
	log  *slog.Logger

	mu sync.Mutex
	// mu guards following
	client    controlplane.Client
	clientFor string // what client was made from
	devices   []controlplane.Node
	listed    time.Time // when devices was read; zero where it never was
	policy    inForce
	base      string // the MagicDNS base domain that a node saw
	settled   string // what the last pass that succeeded brought about; empty asks for a pass
	at        time.Time
}

// inForce is what of the wanted policy entries is in the tailnet's policy, as of the last time it was read.
type inForce struct {
	known bool
	// entries leads each owner to the fingerprint of its entries that are there.
	entries map[desired.Key]string
	// refused leads each owner whose entries the control plane refuses to its words.
	refused map[desired.Key]string
}

func newTailnet(s *Set, key desired.Key, loop *reconcile.Loop, log *slog.Logger) *tailnet {
	return &tailnet{set: s, key: key, loop: loop, log: log}
}

func (t *tailnet) close(context.Context) {}

func (t *tailnet) pass(ctx context.Context) error {
	view, err := t.set.deps.Registry.View(ctx)
	if err != nil {
		return err
	}
	d, ok := view.Document(t.key)
	object, _ := view.Compilation.Object(t.key)
	spec, isTailnet := object.Spec.(*desired.Tailnet)
	if !ok || !isTailnet {
		return reconcile.ErrDone
	}
	want := view.Compilation.Policy(t.key.Name)
	target := fmt.Sprint(d.Revision, d.Ready().Status, t.seenBase(), fingerprint(want))
	if wait := t.rest(target); wait > 0 {
		return &reconcile.Again{After: wait, Why: "nothing has changed"}
	}
	report := status.Begin(t.set.deps.Registry, d)
	facts := desired.Value(d.Status.Facts, blueprint.Facts{})
	if base := t.seenBase(); base != "" {
		facts.BaseDomain, report.Status.BaseDomain = base, base
	}
	err = t.work(ctx, spec, &facts, want)
	if facts.BaseDomain != "" || facts.Principals != nil || len(facts.Lacks) > 0 {
		report.Status.Facts = &facts
	}
	if err == nil && d.Deleting {
		return errors.Join(t.set.deps.Registry.Finish(ctx, t.key), reconcile.ErrDone)
	}
	for _, lack := range facts.Lacks {
		if lack.Refuse {
			report.NotReady(lack.Reason, lack.Detail)
		}
	}
	if err != nil {
		report.NotReady(reasonOf(err), explain(err))
	}
	err = errors.Join(err, report.Commit(ctx))
	if err == nil {
		t.settle(fmt.Sprint(d.Revision, report.Get(desired.Ready).Status, t.seenBase(), fingerprint(want)))
	}
	return err
}

// rest is how long there is nothing to do for what was brought about already: asking the control plane at every change of
// any object would be a burden to it.
func (t *tailnet) rest(target string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.settled != target {
		return 0
	}
	return resync - time.Since(t.at)
}

func (t *tailnet) settle(target string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled, t.at = target, time.Now()
}

// look asks for the control plane to be read now.
func (t *tailnet) look() {
	t.settle("")
	t.loop.Poke()
}

// work reads what the control plane has and brings the policy to what is wanted.
func (t *tailnet) work(ctx context.Context, spec *desired.Tailnet, facts *blueprint.Facts, want []blueprint.PolicyEntry) error {
	client, err := t.connect(ctx, spec)
	if err != nil {
		return err
	}
	seen, err := client.Probe(ctx)
	if err != nil {
		return err
	}
	observed := factsOf(seen)
	observed.BaseDomain = facts.BaseDomain
	*facts = observed
	devices, err := client.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("listing the tailnet's devices: %w", err)
	}
	t.mu.Lock()
	t.devices, t.listed = devices, time.Now()
	t.mu.Unlock()
	return t.keepPolicy(ctx, client, want)
}

// connect gives the client, made anew when what it is made from changed.
func (t *tailnet) connect(ctx context.Context, spec *desired.Tailnet) (controlplane.Client, error) {
	key, err := t.apiKey(ctx, spec)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{spec.Headscale.URL, desired.Value(spec.Headscale.CAPEM, ""), key}, "\x00")))
	made := hex.EncodeToString(sum[:])
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client != nil && t.clientFor == made {
		return t.client, nil
	}
	client, err := t.set.deps.Connect(spec, func() (string, error) { return key, nil })
	if err != nil {
		return nil, err
	}
	t.client, t.clientFor = client, made
	return client, nil
}

func (t *tailnet) apiKey(ctx context.Context, spec *desired.Tailnet) (string, error) {
	if spec.Headscale.APIKeyFile == nil {
		return t.set.deps.Registry.Secret(ctx, t.key, desired.SecretAPIKey)
	}
	return readKeyFile(*spec.Headscale.APIKeyFile)
}

func readKeyFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading headscale.api_key_file: %w; put the key there, readable to the agent alone: %w", err, controlplane.ErrUnauthorized)
	}
	return strings.TrimSpace(string(text)), nil
}

// current gives the client that the last pass worked with, or why there is none.
func (t *tailnet) current() (controlplane.Client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client == nil {
		return nil, fmt.Errorf("%s has not been reached yet: %w", t.key, controlplane.ErrUnavailable)
	}
	return t.client, nil
}

// mint makes a key for one enrolment.
func (t *tailnet) mint(ctx context.Context, tags []string) (string, error) {
	client, err := t.current()
	if err != nil {
		return "", err
	}
	key, err := client.MintKey(ctx, tags, keyTTL)
	if err != nil {
		return "", fmt.Errorf("minting a key for %s: %w", strings.Join(tags, ", "), err)
	}
	return string(key.Secret), nil
}

// device finds a device by its node's key: an id alone may be another device's, at another control plane. It is not fresh
// when the devices were last read before since, and then an absent device says nothing.
func (t *tailnet) device(nodeKey string, since time.Time) (n controlplane.Node, found, fresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh = t.listed.After(since)
	i := slices.IndexFunc(t.devices, func(n controlplane.Node) bool { return nodeKey != "" && n.NodeKey == nodeKey })
	if i < 0 {
		return controlplane.Node{}, false, fresh
	}
	return t.devices[i], true, fresh
}

// holderOf finds the device that has a name, for messages.
func (t *tailnet) holderOf(name string) (controlplane.Node, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.devices, func(n controlplane.Node) bool { return n.GivenName == name })
	if i < 0 {
		return controlplane.Node{}, false
	}
	return t.devices[i], true
}

// sawBase records the MagicDNS base domain that a node was told.
func (t *tailnet) sawBase(base string) {
	t.mu.Lock()
	changed := t.base != base
	t.base = base
	t.mu.Unlock()
	if changed {
		t.look()
	}
}

func (t *tailnet) seenBase() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.base
}

// reasonOf classes an error of a control plane by its type.
func reasonOf(err error) desired.Reason {
	switch {
	case errors.Is(err, controlplane.ErrUnauthorized):
		return desired.ReasonCredentialRefused
	case errors.Is(err, controlplane.ErrUnsupported):
		return desired.ReasonUnsupported
	case errors.Is(err, controlplane.ErrUnavailable):
		return desired.ReasonControlPlaneAway
	}
	var refused *controlplane.PolicyError
	if errors.As(err, &refused) {
		return desired.ReasonPolicyRefused
	}
	return desired.ReasonPending
}

// explain says what an error of a control plane means for its reader.
func explain(err error) string {
	switch reasonOf(err) {
	case desired.ReasonCredentialRefused:
		return err.Error() + "; make a new API key (`headscale apikeys create`) and apply it with a higher api_key_wo_version"
	case desired.ReasonControlPlaneAway:
		return err.Error() + "; traffic goes on, and the agent tries again until the control plane is back"
	default:
		return err.Error()
	}
}
