package headscale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
)

// wirePolicy is the answer to GET and PUT. UpdatedAt is null where policy.mode is file.
type wirePolicy struct {
	Policy    string
	UpdatedAt string
}

func (p wirePolicy) empty() bool { return strings.TrimSpace(p.Policy) == "" }

func (c *Client) getPolicy(ctx context.Context) (p wirePolicy, err error) {
	_, err = c.call(ctx, http.MethodGet, "/api/v1/policy", nil, &p)
	return p, err
}

// Policy implements controlplane.Policies. In policy.mode file it returns the file as it is on the server's disk, without a
// version. A document that was stored empty counts as none: that is how Headscale takes it at its next start.
func (c *Client) Policy(ctx context.Context) (controlplane.Policy, error) {
	p, err := c.getPolicy(ctx)
	if err != nil {
		return controlplane.Policy{}, err
	}
	if p.empty() {
		return controlplane.Policy{}, controlplane.ErrNoPolicy
	}
	return controlplane.Policy{Text: []byte(p.Policy), Version: p.UpdatedAt}, nil
}

// CheckPolicy implements controlplane.Policies. It works in policy.mode file as well.
func (c *Client) CheckPolicy(ctx context.Context, text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return &controlplane.PolicyError{Message: "the document is empty, which allows everything"}
	}
	_, err := c.call(ctx, http.MethodPost, "/api/v1/policy/check", policyBody(text), nil)
	var status *controlplane.StatusError
	if errors.As(err, &status) && errors.Is(status.Class, controlplane.ErrRefused) {
		return &controlplane.PolicyError{Message: status.Message}
	}
	return err
}

// SetPolicy implements controlplane.Policies. Headscale 0.29 has no guard against two writers, so it compares before it writes
// and reads back after: a writer elsewhere that hits the time between is noticed, unless it reads and writes within it.
func (c *Client) SetPolicy(ctx context.Context, text []byte, was controlplane.Policy) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	now, err := c.Policy(ctx)
	switch {
	case err != nil && !errors.Is(err, controlplane.ErrNoPolicy):
		return fmt.Errorf("writing the policy: reading it first: %w", err)
	case err == nil && now.Version == "":
		return fmt.Errorf("writing the policy: %w: policy.mode is file", controlplane.ErrUnsupported)
	case now.Version != was.Version || !bytes.Equal(now.Text, was.Text):
		return fmt.Errorf("writing the policy: %w: read at version %q, now %q", controlplane.ErrPolicyMoved, was.Version, now.Version)
	case bytes.Equal(now.Text, text):
		return nil
	}
	// A bad document gets 500 from PUT, and 400 from the check.
	if err := c.CheckPolicy(ctx, text); err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	var put wirePolicy
	if _, err := c.call(ctx, http.MethodPut, "/api/v1/policy", policyBody(text), &put); err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	now, err = c.Policy(ctx)
	if err != nil {
		return fmt.Errorf("reading the policy back: %w", err)
	}
	if !bytes.Equal(now.Text, text) {
		return fmt.Errorf("reading the policy back: %w: it is not what was written at %s, but of %s", controlplane.ErrPolicyMoved, put.UpdatedAt, now.Version)
	}
	return nil
}

func policyBody(text []byte) any {
	return struct {
		Policy string `json:"policy"`
	}{string(text)}
}
