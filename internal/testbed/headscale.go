package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// BaseDomain is the MagicDNS base domain of the Headscale servers.
const BaseDomain = "tail.test"

// HeadscaleOptions say how a server is set up. The zero value is a server with its policy in the database.
type HeadscaleOptions struct {
	// Dir is the folder for its data; required. It must be short: a socket lies in it.
	Dir string
	// PolicyFile is the policy's text where the policy is to come from a file; empty means the database.
	PolicyFile string
}

// Headscale is a running server, on loopback.
type Headscale struct {
	// URL is where nodes and the API reach it.
	URL string
	// APIKey is a key for its API.
	APIKey string

	options HeadscaleOptions
	binary  string
	ports   []int
	process *Process
}

// StartHeadscale runs a server and makes an API key.
func StartHeadscale(ctx context.Context, o HeadscaleOptions) (*Headscale, error) {
	binary, err := tool("POSTERN_HEADSCALE", "headscale", "tools")
	if err != nil {
		return nil, err
	}
	h := &Headscale{options: o, binary: binary}
	if h.ports, err = freePorts(4); err != nil {
		return nil, err
	}
	h.URL = fmt.Sprintf("http://127.0.0.1:%d", h.ports[0])
	if err := h.writeConfig(); err != nil {
		return nil, err
	}
	if err := h.Start(ctx); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, binary, "--config", h.config(), "apikeys", "create", "--expiration", "24h").CombinedOutput()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making an API key: %w\n%s", err, out), h.Stop())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	h.APIKey = strings.TrimSpace(lines[len(lines)-1])
	return h, nil
}

func (h *Headscale) config() string { return filepath.Join(h.options.Dir, "headscale.yaml") }

// Start runs the server again, with its ports and its data.
func (h *Headscale) Start(ctx context.Context) error {
	env := []string{"HOME=" + h.options.Dir, "PATH=" + os.Getenv("PATH")}
	process, err := startProcess("headscale", filepath.Join(h.options.Dir, "headscale.log"), env, h.binary, "--config", h.config(), "serve")
	if err != nil {
		return err
	}
	h.process = process
	return process.await(ctx, func() error {
		answer, err := http.Get(h.URL + "/health")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
}

// Stop ends the server and keeps its data. A server does not wait for its nodes, so it is given no time either.
func (h *Headscale) Stop() error { return h.process.Kill() }

// writeConfig writes a configuration with which nodes come up in well under a second and nothing leaves the machine.
func (h *Headscale) writeConfig() error {
	dir := h.options.Dir
	policy := "mode: database"
	if h.options.PolicyFile != "" {
		path := filepath.Join(dir, "policy.hujson")
		if err := os.WriteFile(path, []byte(h.options.PolicyFile), 0o600); err != nil {
			return fmt.Errorf("writing Headscale's policy: %w", err)
		}
		policy = "mode: file\n  path: " + path
	}
	text := fmt.Sprintf(headscaleConfig, h.URL, h.ports[0], h.ports[1], h.ports[2], h.ports[3], dir, policy, BaseDomain)
	if err := os.WriteFile(h.config(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing Headscale's configuration: %w", err)
	}
	return nil
}

// headscaleConfig is filled with: URL, four ports, folder, policy, base domain.
const headscaleConfig = `server_url: %[1]s
listen_addr: 127.0.0.1:%[2]d
metrics_listen_addr: 127.0.0.1:%[3]d
grpc_listen_addr: 127.0.0.1:%[4]d
grpc_allow_insecure: true
noise:
  private_key_path: %[6]s/noise.key
prefixes:
  v4: 100.64.0.0/10
  v6: fd7a:115c:a1e0::/48
  allocation: sequential
derp:
  server:
    enabled: true
    region_id: 999
    region_code: hs
    region_name: local
    verify_clients: false
    stun_listen_addr: 127.0.0.1:%[5]d
    private_key_path: %[6]s/derp.key
    automatically_add_embedded_derp_region: true
    ipv4: 127.0.0.1
    ipv6: none
  urls: []
  paths: []
  auto_update_enabled: false
  update_frequency: 24h
disable_check_updates: true
node:
  expiry: 0
  ephemeral:
    inactivity_timeout: 66s
database:
  type: sqlite
  sqlite:
    path: %[6]s/db.sqlite
    write_ahead_log: true
log:
  level: info
  format: text
policy:
  %[7]s
dns:
  magic_dns: true
  base_domain: %[8]s
  override_local_dns: false
  nameservers:
    global: []
unix_socket: %[6]s/hs.sock
unix_socket_permission: "0700"
logtail:
  enabled: false
tuning:
  batch_change_delay: 20ms
  node_store_batch_timeout: 10ms
`

// keyLife is how long the keys of peers are good for.
const keyLife = 24 * time.Hour
