package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Device is a device of the tailnet, as Headscale has it.
type Device struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	GivenName string   `json:"givenName"`
	NodeKey   string   `json:"nodeKey"`
	Addresses []string `json:"ipAddresses"`
	Tags      []string `json:"tags"`
	Online    bool     `json:"online"`
}

// call asks Headscale's REST API.
func (h *Headscale) call(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return fmt.Errorf("encoding %s: %w", path, err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, h.URL+path, &body)
	if err != nil {
		return fmt.Errorf("asking %s: %w", path, err)
	}
	request.Header.Set("Authorization", "Bearer "+h.APIKey)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking Headscale: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("reading Headscale's answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("headscale %s %s: %s: %s", method, path, answer.Status, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// CreateUser makes a user and gives its id.
func (h *Headscale) CreateUser(ctx context.Context, name string) (string, error) {
	var out struct {
		User struct {
			ID string `json:"id"`
		} `json:"user"`
	}
	err := h.call(ctx, http.MethodPost, "/api/v1/user", map[string]string{"name": name, "displayName": name, "email": name + "@example.test"}, &out)
	return out.User.ID, err
}

// AuthKey makes a reusable key, for a user by id, or for tags where the user is empty.
func (h *Headscale) AuthKey(ctx context.Context, user string, tags ...string) (string, error) {
	in := map[string]any{"reusable": true, "expiration": time.Now().Add(keyLife).Format(time.RFC3339)}
	if user != "" {
		in["user"] = user
	}
	if len(tags) > 0 {
		in["aclTags"] = tags
	}
	var out struct {
		Key struct {
			Key string `json:"key"`
		} `json:"preAuthKey"`
	}
	err := h.call(ctx, http.MethodPost, "/api/v1/preauthkey", in, &out)
	return out.Key.Key, err
}

// Devices lists the tailnet's devices.
func (h *Headscale) Devices(ctx context.Context) ([]Device, error) {
	var out struct {
		Nodes []Device `json:"nodes"`
	}
	err := h.call(ctx, http.MethodGet, "/api/v1/node", nil, &out)
	return out.Nodes, err
}

// Device finds a device by its name.
func (h *Headscale) Device(ctx context.Context, name string) (Device, bool, error) {
	devices, err := h.Devices(ctx)
	for _, d := range devices {
		if d.GivenName == name {
			return d, true, nil
		}
	}
	return Device{}, false, err
}

// DeleteDevice deletes a device, as an admin would by hand.
func (h *Headscale) DeleteDevice(ctx context.Context, id string) error {
	return h.call(ctx, http.MethodDelete, "/api/v1/node/"+id, nil, nil)
}

// Policy reads the policy's text.
func (h *Headscale) Policy(ctx context.Context) (string, error) {
	var out struct {
		Policy string `json:"policy"`
	}
	err := h.call(ctx, http.MethodGet, "/api/v1/policy", nil, &out)
	return out.Policy, err
}

// SetPolicy writes the policy, as an admin would by hand.
func (h *Headscale) SetPolicy(ctx context.Context, text string) error {
	return h.call(ctx, http.MethodPut, "/api/v1/policy", map[string]string{"policy": text}, nil)
}
