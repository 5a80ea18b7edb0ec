package headscale

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"tailscale.com/envknob"
)

// TestMain keeps the nodes that tests start on this machine: no log upload, no port mapping, no public control plane or relay.
func TestMain(m *testing.M) {
	for _, knob := range []string{"TS_NO_LOGS_NO_SUPPORT", "TS_DISABLE_PORTMAPPER", "TS_PANIC_IF_HIT_MAIN_CONTROL", "TS_DEBUG_USE_DERP_HTTP"} {
		envknob.Setenv(knob, "1")
	}
	os.Exit(m.Run())
}

// server is a real Headscale on loopback.
type server struct {
	url, debugURL string
	key           string
	dir           string
	t             *testing.T
}

// configForm is a Headscale that needs no network and tells its nodes at once. Its verbs: URL, four ports, directory, policy.
const configForm = `
server_url: %[1]s
listen_addr: 127.0.0.1:%[2]d
metrics_listen_addr: 127.0.0.1:%[3]d
grpc_listen_addr: 127.0.0.1:%[4]d
grpc_allow_insecure: true
noise: {private_key_path: %[6]s/noise.key}
prefixes: {v4: 100.64.0.0/10, v6: "fd7a:115c:a1e0::/48", allocation: sequential}
derp:
  server:
    enabled: true
    region_id: 999
    region_code: test
    region_name: test
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
node: {expiry: 0, ephemeral: {inactivity_timeout: 66s}}
database: {type: sqlite, sqlite: {path: %[6]s/db.sqlite, write_ahead_log: true}}
log: {level: info, format: text}
policy: %[7]s
dns: {magic_dns: true, base_domain: tail.test, override_local_dns: false, nameservers: {global: []}}
unix_socket: %[6]s/hs.sock
unix_socket_permission: "0700"
logtail: {enabled: false}
tuning: {batch_change_delay: 20ms, node_store_batch_timeout: 10ms}
`

// startHeadscale runs Headscale until the test ends. policyConfig is the value of "policy" in its configuration.
func startHeadscale(t *testing.T, policyConfig string) *server {
	t.Helper()
	bin := headscaleBinary(t)
	dir, err := os.MkdirTemp("", "hs") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ports := freePorts(t, 4)
	s := &server{
		url: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), debugURL: fmt.Sprintf("http://127.0.0.1:%d", ports[1]), dir: dir, t: t,
	}
	s.write("config.yaml", fmt.Sprintf(configForm, s.url, ports[0], ports[1], ports[2], ports[3], dir, policyConfig))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(bin, "-c", filepath.Join(dir, "config.yaml"), "serve")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	eventually(t, 20*time.Second, func() error {
		resp, err := http.Get(s.url + "/health")
		if err != nil {
			return fmt.Errorf("%w; its log:\n%s", err, s.read("log"))
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("health: %s", resp.Status)
		}
		return nil
	})
	out, err := exec.Command(bin, "-c", filepath.Join(dir, "config.yaml"), "apikeys", "create", "--expiration", "1h").Output()
	if err != nil {
		t.Fatalf("making an API key: %v\n%s", err, out)
	}
	lines := strings.Fields(string(out))
	s.key = lines[len(lines)-1]
	return s
}

// headscaleBinary finds the server that the tools module pins.
func headscaleBinary(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("POSTERN_HEADSCALE")
	if bin == "" {
		dir, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for ; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				break
			}
			if dir == filepath.Dir(dir) {
				t.Fatal("no go.mod above the working directory")
			}
		}
		bin = filepath.Join(dir, ".cache", "bin", "headscale")
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("this test runs a real Headscale: %v; build it with `make tools`, or set POSTERN_HEADSCALE", err)
	}
	return bin
}

// freePorts returns ports that were free for TCP and UDP a moment ago.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for len(ports) < n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		port := ln.Addr().(*net.TCPAddr).Port
		pc, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer pc.Close()
		ports = append(ports, port)
	}
	return ports
}

func (s *server) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *server) read(name string) string {
	b, _ := os.ReadFile(filepath.Join(s.dir, name))
	return string(b)
}

func (s *server) client() *Client { return newClient(s.t, s.url, s.key) }

func newClient(t *testing.T, url, key string) *Client {
	t.Helper()
	c, err := New(Options{URL: url, APIKey: func() (string, error) { return key, nil }})
	if err != nil {
		t.Fatal(err)
	}
	c.retry.RetryWaitMin, c.retry.RetryWaitMax = time.Millisecond, time.Millisecond
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// filter returns the packet filter that Headscale has made of its policy; "null" denies all.
func (s *server) filter() string {
	s.t.Helper()
	resp, err := http.Get(s.debugURL + "/debug/filter")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(b)), "")
}

// eventually calls check until it returns nil.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		err := check()
		if err == nil {
			tick.Stop()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %v", within, err)
		case <-tick.C:
		}
	}
}

// noLeaks fails the test if goroutines are left when it and the cleanups after this call are done.
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		goleak.VerifyNone(t, before)
	})
}
