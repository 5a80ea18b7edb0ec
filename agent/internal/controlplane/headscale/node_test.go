package headscale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"tailscale.com/tailcfg"
	"tailscale.com/tsnet"
	"tailscale.com/wgengine/filter"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
	"github.com/posterndev/terraform-provider-postern/agent/internal/policy"
)

func joining(t *testing.T, s *server, hostname, key string) *tsnet.Server {
	t.Helper()
	node := &tsnet.Server{
		Hostname: hostname, Dir: filepath.Join(t.TempDir(), hostname), ControlURL: s.url, AuthKey: key,
		UserLogf: func(string, ...any) {},
	}
	t.Cleanup(func() { node.Close() })
	return node
}

// join starts a real node that enrols with a fresh key.
func join(t *testing.T, s *server, hostname string, tags ...string) *tsnet.Server {
	t.Helper()
	key, err := s.client().MintKey(t.Context(), tags, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return joinWith(t, s, hostname, key)
}

func joinWith(t *testing.T, s *server, hostname string, key controlplane.AuthKey) *tsnet.Server {
	t.Helper()
	node := joining(t, s, hostname, string(key.Secret))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := node.Up(ctx); err != nil {
		t.Fatalf("enrolling %s: %v", hostname, err)
	}
	return node
}

// node returns the only node with a MagicDNS label.
func (s *server) node(c *Client, givenName string) controlplane.Node {
	s.t.Helper()
	nodes, err := c.Nodes(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, n := range nodes {
		if n.GivenName == givenName {
			return n
		}
	}
	s.t.Fatalf("no node %q in %+v", givenName, nodes)
	return controlplane.Node{}
}

func TestNodeLifecycle(t *testing.T) {
	s := startHeadscale(t, "{mode: database}")
	c, ctx := s.client(), t.Context()
	if nodes, err := c.Nodes(ctx); err != nil || len(nodes) != 0 {
		t.Fatalf("at first: %v, %v", nodes, err)
	}
	doc := `{"tagOwners": {"tag:shop": [], "tag:extra": []}, "grants": []}`
	if err := c.SetPolicy(ctx, []byte(doc), controlplane.Policy{}); err != nil {
		t.Fatal(err)
	}
	key, err := c.MintKey(ctx, []string{"tag:shop"}, time.Minute)
	if left := time.Until(key.Expires); err != nil || left <= 0 || left > time.Minute {
		t.Fatalf("MintKey: %v, ends in %s", err, left)
	}
	up := joinWith(t, s, "shop", key)
	four, six := up.TailscaleIPs()

	n := s.node(c, "shop")
	if !n.Online || n.NodeKey == "" || n.Created.IsZero() || n.LastSeen.IsZero() || !n.Expires.IsZero() {
		t.Errorf("node = %+v", n)
	}
	want := controlplane.Node{
		ID: n.ID, Name: "shop", GivenName: "shop", NodeKey: n.NodeKey, Tags: []string{"tag:shop"},
		Addresses: []netip.Addr{four, six}, Online: true, Created: n.Created, LastSeen: n.LastSeen,
	}
	if d := cmp.Diff(want, n, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("node (-want +got):\n%s", d)
	}

	// The key was for one node.
	second := joining(t, s, "second", string(key.Secret))
	brief, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := second.Up(brief); err == nil {
		t.Error("a second node enrolled with the same key")
	}

	if err := c.RenameNode(ctx, n.ID, "kiosk"); err != nil {
		t.Error(err)
	}
	if err := c.SetTags(ctx, n.ID, []string{"tag:shop", "tag:extra"}); err != nil {
		t.Error(err)
	}
	if got := s.node(c, "kiosk"); len(got.Tags) != 2 || got.ID != n.ID {
		t.Errorf("after renaming and tagging: %+v", got)
	}
	join(t, s, "other", "tag:shop")
	if err := c.RenameNode(ctx, n.ID, "other"); !errors.Is(err, controlplane.ErrNameTaken) || !errors.Is(err, controlplane.ErrRefused) {
		t.Errorf("taking another's name: %v", err)
	}
	for range 2 { // the second time it is not there any more
		if err := c.DeleteNode(ctx, n.ID); err != nil {
			t.Errorf("DeleteNode: %v", err)
		}
	}
	if nodes, err := c.Nodes(ctx); err != nil || len(nodes) != 1 || nodes[0].GivenName != "other" {
		t.Errorf("in the end: %+v, %v", nodes, err)
	}
}

func TestNodeRefusals(t *testing.T) {
	s := startHeadscale(t, "{mode: database}")
	c, ctx := s.client(), t.Context()
	join(t, s, "shop", "tag:shop")
	id := s.node(c, "shop").ID
	for _, tt := range []struct {
		name  string
		err   error
		class error
		text  string
	}{
		{"rename absent", c.RenameNode(ctx, "999", "x"), controlplane.ErrNotFound, `renaming node 999 to "x"`},
		{"rename to no label", c.RenameNode(ctx, id, "a_b"), controlplane.ErrRefused, "not a valid DNS label"},
		{"tag absent", c.SetTags(ctx, "999", []string{"tag:x"}), controlplane.ErrNotFound, "node not found"},
		{"undefined tag", c.SetTags(ctx, id, []string{"tag:nope"}), controlplane.ErrRefused, "requested tags [tag:nope] are invalid or not permitted"},
		{"no tag", c.SetTags(ctx, id, []string{"nope"}), controlplane.ErrRefused, "tag must start with"},
		{"no tags", c.SetTags(ctx, id, nil), controlplane.ErrRefused, "cannot remove all tags"},
		{"odd id", c.DeleteNode(ctx, "../policy"), controlplane.ErrRefused, ""},
		{"key for no tag", third(c.MintKey(ctx, []string{"nope"}, time.Minute)), controlplane.ErrRefused, "tag must start with"},
		{"key without tags", third(c.MintKey(ctx, nil, time.Minute)), nil, "want tags and a time"},
		{"key without time", third(c.MintKey(ctx, []string{"tag:x"}, 0)), nil, "want tags and a time"},
	} {
		if tt.err == nil || tt.class != nil && !errors.Is(tt.err, tt.class) || !strings.Contains(tt.err.Error(), tt.text) {
			t.Errorf("%s: %v, want %v and %q", tt.name, tt.err, tt.class, tt.text)
		}
	}
	if got := s.node(c, "shop"); len(got.Tags) != 1 {
		t.Errorf("the refusals changed the node: %+v", got)
	}
}

func third(_ controlplane.AuthKey, err error) error { return err }

// TestMergedPolicyBetweenNodes checks with two real nodes what package policy says of its documents (P13): adding the first
// grant cuts nobody off, and taking the last one out opens nothing.
func TestMergedPolicyBetweenNodes(t *testing.T) {
	s := startHeadscale(t, "{mode: database}")
	c := s.client()
	a, b := join(t, s, "a", "tag:a"), join(t, s, "b", "tag:b")
	lc, err := a.LocalClient()
	if err != nil {
		t.Fatal(err)
	}
	_, six := b.TailscaleIPs()
	// allows waits until the packet filter in force on a lets b in, or not. To dial would not tell: without a peer to
	// send to, the connection would be tried outside the tailnet.
	allows := func(want bool, doc string) {
		t.Helper()
		eventually(t, 15*time.Second, func() error {
			rules, err := lc.DebugPacketFilterRules(t.Context())
			if err != nil {
				return err
			}
			if got := admits(rules, six); got != want {
				return fmt.Errorf("the filter admits b: %t, want %t; rules %+v, document\n%s", got, want, rules, doc)
			}
			return nil
		})
	}
	set := func(doc []byte) { t.Helper(); setPolicy(t, c, doc) }
	allows(true, "no policy")
	set([]byte(`{"grants": []}`))
	allows(false, `{"grants": []}`)
	set([]byte(`{}`))
	allows(true, `{}`)

	// A grant that is about others.
	grant := []policy.Entry{{Owner: "ingress default/x", Section: policy.Grants, Key: "allow_from", Value: json.RawMessage(`{"src":["100.64.0.77"],"dst":["100.64.0.78"],"ip":["tcp:1"]}`)}}
	merged, changes, err := policy.Merge([]byte(`{}`), "test", grant)
	if err != nil || changes[0].Kind != policy.MadeExplicit {
		t.Fatalf("Merge: %v, %v", changes, err)
	}
	set([]byte(`{"acls": []}`))
	allows(false, `{"acls": []}`)
	set(merged)
	allows(true, string(merged))

	// Somebody removes the rule that allows all, as its comment invites to; then our grant goes.
	closed := withoutKeptRule(string(merged))
	set([]byte(closed))
	allows(false, closed)
	last, _, err := policy.Merge([]byte(closed), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	set(policy.AllowAll())
	allows(true, "AllowAll")
	set(last)
	allows(false, string(last))
}

// withoutKeptRule takes out the line of the rule that allows all, and the comment above it.
func withoutKeptRule(doc string) string {
	lines := strings.Split(doc, "\n")
	i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "kept by postern") })
	return strings.Join(slices.Delete(lines, i, i+2), "\n")
}

// admits reports whether rules let src in to any port of any address.
func admits(rules []tailcfg.FilterRule, src netip.Addr) bool {
	matches, err := filter.MatchesFromFilterRules(rules)
	if err != nil {
		return false
	}
	for _, m := range matches {
		for _, p := range m.Srcs {
			if p.Contains(src) {
				return true
			}
		}
	}
	return false
}
