package headscale

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
	"github.com/posterndev/terraform-provider-postern/agent/internal/policy"
)

const first = "{\n  // kept as it is\n  \"groups\": {\"group:eng\": []},\n  \"tagOwners\": {\"tag:web\": [\"group:eng\"]},\n}\n"

func TestPolicyLifecycle(t *testing.T) {
	noLeaks(t)
	s := startHeadscale(t, "{mode: database}")
	c, ctx := s.client(), t.Context()

	if p, err := c.Policy(ctx); !errors.Is(err, controlplane.ErrNoPolicy) {
		t.Fatalf("before anything was set: %+v, %v", p, err)
	}
	if err := c.SetPolicy(ctx, []byte(first), controlplane.Policy{}); err != nil {
		t.Fatal(err)
	}
	p1, err := c.Policy(ctx)
	if err != nil || string(p1.Text) != first || p1.Version == "" {
		t.Fatalf("read back %q, version %q, %v", p1.Text, p1.Version, err)
	}

	// Another writer comes between.
	second := strings.Replace(first, "kept", "left", 1)
	if err := s.client().SetPolicy(ctx, []byte(second), p1); err != nil {
		t.Fatal(err)
	}
	err = c.SetPolicy(ctx, []byte(`{}`), p1)
	if !errors.Is(err, controlplane.ErrPolicyMoved) {
		t.Errorf("writing over another's document: %v", err)
	}
	if err := c.SetPolicy(ctx, []byte(`{}`), controlplane.Policy{}); !errors.Is(err, controlplane.ErrPolicyMoved) {
		t.Errorf("writing as if there were none: %v", err)
	}
	p2, err := c.Policy(ctx)
	if err != nil || string(p2.Text) != second {
		t.Errorf("the refused writes changed it to %q, %v", p2.Text, err)
	}
	// The same text written again by somebody has another version: whoever read before has not seen that.
	if _, err := c.call(ctx, "PUT", "/api/v1/policy", policyBody([]byte(second)), nil); err != nil {
		t.Fatal(err)
	}
	if p, err := c.Policy(ctx); err != nil || p.Version == p2.Version {
		t.Errorf("version after a second write of the same: %q, was %q, %v", p.Version, p2.Version, err)
	}
	// Stored empty, the policy goes on only until the server starts again: that is none.
	if _, err := c.call(ctx, "PUT", "/api/v1/policy", policyBody(nil), nil); err != nil {
		t.Fatal(err)
	}
	if p, err := c.Policy(ctx); !errors.Is(err, controlplane.ErrNoPolicy) {
		t.Errorf("stored empty: %+v, %v", p, err)
	}
	if err := c.SetPolicy(ctx, []byte(first), controlplane.Policy{}); err != nil {
		t.Errorf("writing after it was stored empty: %v", err)
	}
}

func TestBadPolicy(t *testing.T) {
	s := startHeadscale(t, "{mode: database}")
	c, ctx := s.client(), t.Context()
	for _, tt := range []struct{ name, text, want string }{
		{"syntax", "{\"grants\": [}", "parsing HuJSON"},
		{"unknown section", "{\"postures\": {}}", `unknown field: "postures"`},
		{"undefined tag", `{"grants": [{"src": ["tag:nope"], "dst": ["*"], "ip": ["*"]}]}`, `tag not found: "tag:nope"`},
		{"failing test", `{"acls": [], "tests": [{"src": "100.64.0.1", "accept": ["100.64.0.2:22"]}]}`, "test(s) failed"},
		{"empty", " \n", "the document is empty, which allows everything"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var refused *controlplane.PolicyError
			err := c.CheckPolicy(ctx, []byte(tt.text))
			if !errors.As(err, &refused) || !strings.Contains(refused.Message, tt.want) || !errors.Is(err, controlplane.ErrRefused) {
				t.Errorf("CheckPolicy: %v, want it to say %q", err, tt.want)
			}
			if err := c.SetPolicy(ctx, []byte(tt.text), controlplane.Policy{}); !errors.As(err, &refused) {
				t.Errorf("SetPolicy: %v", err)
			}
		})
	}
	if p, err := c.Policy(ctx); !errors.Is(err, controlplane.ErrNoPolicy) {
		t.Errorf("a refused document was stored: %q, %v", p.Text, err)
	}
	if err := c.CheckPolicy(ctx, []byte(first)); err != nil {
		t.Errorf("a good document: %v", err)
	}
}

func TestPolicyInFile(t *testing.T) {
	s := startHeadscale(t, "{mode: file}") // the default mode, without a path
	c, ctx := s.client(), t.Context()
	if _, err := c.Policy(ctx); !errors.Is(err, controlplane.ErrUnsupported) || errors.Is(err, controlplane.ErrNoPolicy) {
		t.Errorf("Policy without a file: %v", err)
	}
	checkFileMode(t, c, policy.Names{})

	path := s.write("policy.hujson", first)
	with := startHeadscale(t, fmt.Sprintf("{mode: file, path: %q}", path))
	c = with.client()
	p, err := c.Policy(ctx)
	if err != nil || string(p.Text) != first || p.Version != "" {
		t.Errorf("Policy = %q, version %q, %v", p.Text, p.Version, err)
	}
	if err := c.SetPolicy(ctx, []byte(`{"acls": []}`), p); !errors.Is(err, controlplane.ErrUnsupported) || !strings.Contains(err.Error(), "policy.mode is file") {
		t.Errorf("SetPolicy: %v", err)
	}
	// The server says so too, should it not show in what it reads.
	if _, err := c.call(ctx, "PUT", "/api/v1/policy", policyBody([]byte("{}")), nil); !errors.Is(err, controlplane.ErrUnsupported) {
		t.Errorf("PUT: %v", err)
	}
	if err := c.CheckPolicy(ctx, []byte(first)); err != nil {
		t.Errorf("CheckPolicy: %v", err)
	}
	checkFileMode(t, c, policy.Names{Groups: []string{"group:eng"}, Tags: []string{"tag:web"}, AllowsAll: true})
}

func checkFileMode(t *testing.T, c *Client, names policy.Names) {
	t.Helper()
	f, err := c.Probe(t.Context())
	if err != nil {
		t.Fatalf("Probe: %v", err)
	}
	if f.PolicyMode != controlplane.PolicyFile || f.PolicyWritable || len(f.Problems) != 1 {
		t.Fatalf("facts = %+v", f)
	}
	if d := cmp.Diff(names, f.Names); d != "" {
		t.Errorf("names (-want +got):\n%s", d)
	}
	p := f.Problems[0]
	for _, text := range []string{"policy.mode: file", "policy.mode: database", "restart", "headscale policy set"} {
		if p.ID != controlplane.ProblemPolicyFile || !strings.Contains(p.Detail, text) {
			t.Errorf("problem %s does not say %q: %s", p.ID, text, p.Detail)
		}
	}
}

// TestRulelessMeaning holds what package policy relies on against the filter that the server makes (P13).
func TestRulelessMeaning(t *testing.T) {
	s := startHeadscale(t, "{mode: database}")
	c := s.client()
	all := s.filter() // no policy yet
	if !strings.Contains(all, `"SrcIPs":["*"]`) {
		t.Fatalf("filter without a policy: %s", all)
	}
	const none = "null"
	for _, tt := range []struct{ doc, want string }{
		{`{"acls": []}`, none},
		{`{}`, all},
		{`{"grants": []}`, none},
		{`{"grants": null}`, all},
		{`{"grants": [], "acls": null}`, none},
		{`{"tagOwners": {"tag:a": ["tag:a"]}}`, all},
		{`{"GRANTS": []}`, none},
		{string(policy.AllowAll()), all},
	} {
		setPolicy(t, c, []byte(tt.doc))
		if got := s.filter(); got != tt.want {
			t.Errorf("%s: filter %s, want %s", tt.doc, got, tt.want)
		}
		n, err := policy.Describe([]byte(tt.doc))
		if err != nil || n.Rules == 0 && n.AllowsAll != (tt.want == all) {
			t.Errorf("%s: Describe says %+v, %v", tt.doc, n, err)
		}
	}
}

// setPolicy writes a document over whatever is there.
func setPolicy(t *testing.T, c *Client, doc []byte) {
	t.Helper()
	was, err := c.Policy(t.Context())
	if err != nil && !errors.Is(err, controlplane.ErrNoPolicy) {
		t.Fatal(err)
	}
	if err := c.SetPolicy(t.Context(), doc, was); err != nil {
		t.Fatal(err)
	}
}
