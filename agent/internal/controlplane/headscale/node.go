package headscale

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
)

// wireNode is a node as the API sends it. Times that are not set come as null or as year 1.
type wireNode struct {
	ID          string
	Name        string
	GivenName   string
	NodeKey     string
	Tags        []string
	IPAddresses []string
	Online      bool
	CreatedAt   time.Time
	LastSeen    time.Time
	Expiry      time.Time
	User        struct{ Name string }
}

func (n wireNode) node() (controlplane.Node, error) {
	out := controlplane.Node{
		ID: n.ID, Name: n.Name, GivenName: n.GivenName, NodeKey: n.NodeKey, Tags: n.Tags, Online: n.Online,
		Created: n.CreatedAt, LastSeen: n.LastSeen, Expires: n.Expiry,
	}
	if len(n.Tags) == 0 { // else Headscale reports a user "tagged-devices" that is none
		out.User = n.User.Name
	}
	for _, text := range n.IPAddresses {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return out, fmt.Errorf("node %s (%s): %w", n.ID, n.Name, err)
		}
		out.Addresses = append(out.Addresses, addr)
	}
	return out, nil
}

// Nodes implements controlplane.Nodes.
func (c *Client) Nodes(ctx context.Context) ([]controlplane.Node, error) {
	var answer struct{ Nodes []wireNode }
	if _, err := c.call(ctx, http.MethodGet, "/api/v1/node", nil, &answer); err != nil {
		return nil, err
	}
	nodes := make([]controlplane.Node, 0, len(answer.Nodes))
	for _, w := range answer.Nodes {
		n, err := w.node()
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// DeleteNode implements controlplane.Nodes. The node goes on as if nothing had happened until it asks the server again.
func (c *Client) DeleteNode(ctx context.Context, id string) error {
	if _, err := strconv.ParseUint(id, 10, 64); err != nil { // another path could be absent as well
		return fmt.Errorf("deleting node %q: %w: want a number", id, controlplane.ErrRefused)
	}
	_, err := c.call(ctx, http.MethodDelete, nodePath(id), nil, nil)
	if errors.Is(err, controlplane.ErrNotFound) {
		return nil
	}
	return err
}

// RenameNode implements controlplane.Nodes.
func (c *Client) RenameNode(ctx context.Context, id, name string) error {
	var answer struct{ Node wireNode }
	if _, err := c.call(ctx, http.MethodPost, nodePath(id)+"/rename/"+url.PathEscape(name), struct{}{}, &answer); err != nil {
		return fmt.Errorf("renaming node %s to %q: %w", id, name, err)
	}
	if answer.Node.GivenName != name {
		return fmt.Errorf("renaming node %s to %q: it is now called %q", id, name, answer.Node.GivenName)
	}
	return nil
}

// SetTags implements controlplane.Nodes. Tags that the policy does not define are refused.
func (c *Client) SetTags(ctx context.Context, id string, tags []string) error {
	in := struct {
		Tags []string `json:"tags"`
	}{tags}
	if _, err := c.call(ctx, http.MethodPost, nodePath(id)+"/tags", in, nil); err != nil {
		return fmt.Errorf("setting tags %q of node %s: %w", tags, id, err)
	}
	return nil
}

func nodePath(id string) string { return "/api/v1/node/" + url.PathEscape(id) }

// MintKey implements controlplane.Nodes. The key works once and needs no approval. Headscale takes tags here that
// its policy does not define.
func (c *Client) MintKey(ctx context.Context, tags []string, ttl time.Duration) (controlplane.AuthKey, error) {
	if len(tags) == 0 || slices.Contains(tags, "") || ttl <= 0 {
		return controlplane.AuthKey{}, fmt.Errorf("minting a key for tags %q and %s: want tags and a time", tags, ttl)
	}
	in := struct {
		Reusable   bool      `json:"reusable"`
		Ephemeral  bool      `json:"ephemeral"`
		Tags       []string  `json:"aclTags"`
		Expiration time.Time `json:"expiration"`
	}{Tags: tags, Expiration: time.Now().Add(ttl).UTC()}
	var answer struct {
		PreAuthKey struct {
			ID         string
			Key        string
			Reusable   bool
			Expiration time.Time
			ACLTags    []string
		}
	}
	if _, err := c.call(ctx, http.MethodPost, "/api/v1/preauthkey", in, &answer); err != nil {
		return controlplane.AuthKey{}, fmt.Errorf("minting a key for tags %q: %w", tags, err)
	}
	got := answer.PreAuthKey
	if _, err := strconv.ParseUint(got.ID, 10, 64); err != nil || got.Key == "" || got.Reusable || len(got.ACLTags) != len(tags) {
		return controlplane.AuthKey{}, fmt.Errorf("minting a key for tags %q: %w: the key in the answer is not the one asked for", tags, controlplane.ErrWrongServer)
	}
	return controlplane.AuthKey{ID: got.ID, Secret: controlplane.Secret(got.Key), Expires: got.Expiration}, nil
}
