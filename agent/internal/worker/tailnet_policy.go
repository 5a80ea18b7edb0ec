package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
	"github.com/posterndev/terraform-provider-postern/agent/internal/policy"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// policyAttempts is how often a write is tried anew when someone else wrote between reading and writing.
const policyAttempts = 3

// keepPolicy brings the tailnet's policy to what is wanted, leaving every foreign byte (P2), and records what is in force.
// What the control plane refuses is left out and its owner told, so that one bad entry keeps no other from its place.
func (t *tailnet) keepPolicy(ctx context.Context, client controlplane.Client, want []blueprint.PolicyEntry) error {
	var refused map[desired.Key]string
	for range policyAttempts {
		is, err := client.Policy(ctx)
		base := is.Text
		if errors.Is(err, controlplane.ErrNoPolicy) {
			if len(want) == 0 {
				t.record(nil, nil)
				return nil
			}
			is, base, err = controlplane.Policy{}, policy.AllowAll(), nil
		}
		if err != nil {
			return fmt.Errorf("reading the policy: %w", err)
		}
		var text []byte
		if text, refused, err = t.merge(ctx, client, base, want); err != nil {
			return err
		}
		if string(text) == string(is.Text) {
			t.record(want, refused)
			return nil
		}
		err = client.SetPolicy(ctx, text, is)
		if errors.Is(err, controlplane.ErrPolicyMoved) {
			continue
		}
		if err != nil {
			return fmt.Errorf("writing the policy: %w", err)
		}
		t.log.Info("policy written", "entries", len(want), "refused", len(refused))
		t.record(want, refused)
		return nil
	}
	return fmt.Errorf("writing the policy: others kept writing it at the same time: %w", controlplane.ErrPolicyMoved)
}

// merge gives the document with the wanted entries, without those that the control plane refuses.
func (t *tailnet) merge(ctx context.Context, client controlplane.Client, text []byte, want []blueprint.PolicyEntry) ([]byte, map[desired.Key]string, error) {
	merged, err := t.mergeAll(text, want)
	if err != nil {
		return nil, nil, err
	}
	if string(merged) == string(text) {
		return merged, nil, nil
	}
	var refusal *controlplane.PolicyError
	if err := client.CheckPolicy(ctx, merged); err == nil || errors.Is(err, controlplane.ErrUnsupported) {
		return merged, nil, nil
	} else if !errors.As(err, &refusal) {
		return nil, nil, fmt.Errorf("checking the policy: %w", err)
	}
	return t.mergeOneByOne(ctx, client, text, want)
}

// mergeOneByOne adds one owner's entries after the other and leaves out those with which the document is refused.
func (t *tailnet) mergeOneByOne(ctx context.Context, client controlplane.Client, text []byte, want []blueprint.PolicyEntry) ([]byte, map[desired.Key]string, error) {
	refused := map[desired.Key]string{}
	accepted, err := t.mergeAll(text, nil)
	if err != nil {
		return nil, nil, err
	}
	var taken []blueprint.PolicyEntry
	for _, owner := range owners(want) {
		trial := append(slices.Clone(taken), entriesOf(want, owner)...)
		merged, err := t.mergeAll(text, trial)
		if err != nil {
			return nil, nil, err
		}
		err = client.CheckPolicy(ctx, merged)
		var refusal *controlplane.PolicyError
		if errors.As(err, &refusal) {
			refused[owner] = refusal.Error()
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("checking the policy: %w", err)
		}
		taken, accepted = trial, merged
	}
	return accepted, refused, nil
}

func (t *tailnet) mergeAll(text []byte, want []blueprint.PolicyEntry) ([]byte, error) {
	entries := make([]policy.Entry, 0, len(want))
	for _, e := range want {
		entry, err := policyEntry(e)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	merged, changes, err := policy.Merge(text, t.instance(), entries)
	if err != nil {
		return nil, fmt.Errorf("merging the policy: %w", err)
	}
	for _, change := range changes {
		t.log.Debug("policy change", "kind", change.Kind, "owner", change.Entry.Owner, "key", change.Entry.Key)
	}
	return merged, nil
}

// instance marks the entries of this tailnet's worker: two tailnets of one agent may share a server.
func (t *tailnet) instance() string { return t.set.deps.Instance + "." + t.key.Name }

func policyEntry(e blueprint.PolicyEntry) (policy.Entry, error) {
	out := policy.Entry{Owner: e.Owner.String(), Section: policy.TagOwners, Key: e.Tag}
	var value any = e.Owners
	if e.Grant != nil {
		out.Section, out.Key, value = policy.Grants, "allow_from", e.Grant
	}
	var err error
	if out.Value, err = json.Marshal(value); err != nil {
		return out, fmt.Errorf("encoding a policy entry of %s: %w", e.Owner, err)
	}
	return out, nil
}

func owners(want []blueprint.PolicyEntry) []desired.Key {
	var keys []desired.Key
	for _, e := range want {
		if !slices.Contains(keys, e.Owner) {
			keys = append(keys, e.Owner)
		}
	}
	return keys
}

func entriesOf(want []blueprint.PolicyEntry, owner desired.Key) []blueprint.PolicyEntry {
	var out []blueprint.PolicyEntry
	for _, e := range want {
		if e.Owner == owner {
			out = append(out, e)
		}
	}
	return out
}

// record keeps what is in force, and wakes the ingresses when it changed.
func (t *tailnet) record(want []blueprint.PolicyEntry, refused map[desired.Key]string) {
	now := inForce{known: true, entries: map[desired.Key]string{}, refused: refused}
	for _, owner := range owners(want) {
		if _, no := refused[owner]; !no {
			now.entries[owner] = fingerprint(entriesOf(want, owner))
		}
	}
	t.mu.Lock()
	changed := !reflect.DeepEqual(t.policy, now)
	t.policy = now
	t.mu.Unlock()
	if changed {
		t.set.pokeIngresses()
	}
}

// fingerprint tells apart what an owner's entries say.
func fingerprint(entries []blueprint.PolicyEntry) string {
	text, err := json.Marshal(entries)
	if err != nil {
		return err.Error()
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// enforced reports whether an ingress's entries are in force as they are wanted, and if not, the control plane's words. It
// is not known before the policy was read for the first time.
func (t *tailnet) enforced(owner desired.Key, want []blueprint.PolicyEntry) (ok, known bool, refusal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if words, no := t.policy.refused[owner]; no {
		return false, true, words
	}
	return t.policy.entries[owner] == fingerprint(entriesOf(want, owner)), t.policy.known, ""
}

// cleared reports whether nothing of owner is in the policy.
func (t *tailnet) cleared(owner desired.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, there := t.policy.entries[owner]
	return t.policy.known && !there
}
