package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// patience is how long a step of a story may take.
const patience = time.Minute

// story is what one script has running.
type story struct {
	dir       string
	headscale *testbed.Headscale
	agent     *testbed.Agent
	backends  map[string]*testbed.Backend
	peers     map[string]*testbed.Peer
}

type storyKey struct{}

func storyOf(ts *testscript.TestScript) *story {
	s, ok := ts.Value(storyKey{}).(*story)
	if !ok {
		ts.Fatalf("the story is missing")
	}
	return s
}

func TestStories(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", Setup: setup,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"headscale": cmdHeadscale, "agent": cmdAgent, "backend": cmdBackend, "peer": cmdPeer, "reach": cmdReach,
			"devices": cmdDevices, "policy": cmdPolicy, "delete-device": cmdDeleteDevice, "becomes": cmdBecomes, "forget": cmdForget,
			"no-secret": cmdNoSecret, "same-device": cmdSameDevice, "setenv": cmdSetenv,
		},
	})
}

// setup gives a script the programs, and a Terraform that finds the provider without any registry.
func setup(env *testscript.Env) error {
	dir, err := os.MkdirTemp("", "story-") // short: sockets lie in it
	if err != nil {
		return err
	}
	s := &story{dir: dir, backends: map[string]*testbed.Backend{}, peers: map[string]*testbed.Peer{}}
	env.Values[storyKey{}] = s
	env.Defer(func() { s.end() })
	if _, err := testbed.NewTerraform(cli, built.Provider, env.WorkDir, filepath.Join(dir, "mirror")); err != nil {
		return err
	}
	programs := filepath.Join(dir, "bin")
	if err := os.Mkdir(programs, 0o755); err != nil {
		return err
	}
	if err := errors.Join(os.Symlink(cli, filepath.Join(programs, "terraform")), os.Symlink(built.Agent, filepath.Join(programs, "postern"))); err != nil {
		return err
	}
	env.Setenv("PATH", programs+string(os.PathListSeparator)+env.Getenv("PATH"))
	env.Setenv("TF_CLI_CONFIG_FILE", filepath.Join(dir, "mirror", "cli.tfrc"))
	env.Setenv("TF_CLI_ARGS", "-no-color")
	env.Setenv("TF_IN_AUTOMATION", "1")
	env.Setenv("TF_INPUT", "0")
	env.Setenv("CHECKPOINT_DISABLE", "1")
	env.Setenv("TMPDIR", os.TempDir())
	env.Setenv("POSTERN_ENDPOINT", "unix://"+filepath.Join(dir, "agent", "postern.sock"))
	for _, pair := range testbed.Env() {
		name, value, _ := strings.Cut(pair, "=")
		env.Setenv(name, value)
	}
	return nil
}

func (s *story) end() {
	for _, p := range s.peers {
		_ = p.Close() // the story is over
	}
	if s.agent != nil {
		_ = s.agent.Kill() // the story is over
	}
	if s.headscale != nil {
		_ = s.headscale.Stop() // the story is over
	}
	for _, b := range s.backends {
		b.Close()
	}
	_ = os.RemoveAll(s.dir) // the story is over
}

func within(ts *testscript.TestScript, do func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := do(ctx); err != nil {
		if s := storyOf(ts); s.agent != nil && s.agent.Process() != nil {
			ts.Logf("the end of the agent's log:\n%s", s.agent.Tail())
		}
		ts.Fatalf("%v", err)
	}
}

// headscale [stop|start|file]: a server, and its URL and key in the environment.
func cmdHeadscale(ts *testscript.TestScript, _ bool, args []string) {
	s := storyOf(ts)
	within(ts, func(ctx context.Context) error {
		switch strings.Join(args, " ") {
		case "stop":
			return s.headscale.Stop()
		case "start":
			return s.headscale.Start(ctx)
		}
		dir := filepath.Join(s.dir, "hs")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		options := testbed.HeadscaleOptions{Dir: dir}
		if len(args) == 1 && args[0] == "file" {
			options.PolicyFile = "{}"
		}
		var err error
		if s.headscale, err = testbed.StartHeadscale(ctx, options); err != nil {
			return err
		}
		ts.Setenv("TF_VAR_headscale_url", s.headscale.URL)
		ts.Setenv("TF_VAR_headscale_api_key", s.headscale.APIKey)
		return nil
	})
}

// agent [https]: the agent, which with https listens there too. agent kill|stop|start: kill is kill -9.
func cmdAgent(ts *testscript.TestScript, _ bool, args []string) {
	s := storyOf(ts)
	within(ts, func(ctx context.Context) error {
		switch strings.Join(args, " ") {
		case "kill":
			return s.agent.Kill()
		case "stop":
			return s.agent.Stop()
		case "start":
			return s.agent.Start(ctx)
		}
		dir := filepath.Join(s.dir, "agent")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		more := []string{}
		if len(args) == 1 && args[0] == "https" {
			port, err := freePort()
			if err != nil {
				return err
			}
			address := fmt.Sprintf("127.0.0.1:%d", port)
			more = append(more, "listen: "+address)
			ts.Setenv("AGENT_HTTPS", "https://"+address)
			ts.Setenv("AGENT_CA", filepath.Join(dir, "state", "api.pem"))
		}
		var err error
		s.agent, err = testbed.StartAgent(ctx, built.Agent, dir, more...)
		return err
	})
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// setenv NAME FILE: the file's text without white space around it.
func cmdSetenv(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
}

// backend http|tcp|udp|down NAME: a service, and its address in TF_VAR_NAME. down is an address where nobody listens.
// backend up NAME: a web service at the address of one that is down.
func cmdBackend(ts *testscript.TestScript, _ bool, args []string) {
	s := storyOf(ts)
	start := map[string]func() (*testbed.Backend, error){
		"http": func() (*testbed.Backend, error) { return testbed.StartHTTP(args[1]) },
		"tcp":  testbed.StartEcho, "udp": testbed.StartUDPEcho, "down": testbed.StartEcho,
		"up": func() (*testbed.Backend, error) { return testbed.StartHTTPAt(args[1], s.backends[args[1]].Address) },
	}[args[0]]
	b, err := start()
	ts.Check(err)
	s.backends[args[1]] = b
	ts.Setenv("TF_VAR_"+args[1], b.Address)
	if args[0] == "down" {
		b.Close()
	}
}

// peer NAME USER: a device of a user.
func cmdPeer(ts *testscript.TestScript, _ bool, args []string) {
	s := storyOf(ts)
	within(ts, func(ctx context.Context) error {
		user, err := s.headscale.CreateUser(ctx, args[1])
		if err != nil {
			return err
		}
		key, err := s.headscale.AuthKey(ctx, user)
		if err != nil {
			return err
		}
		s.peers[args[0]], err = testbed.StartPeer(ctx, s.headscale, args[0], key, filepath.Join(s.dir, "peer-"+args[0]))
		return err
	})
}

// document reads an ingress from the agent.
func (s *story) document(ctx context.Context, id string) (address string, err error) {
	key, err := desired.ParseID(desired.KindIngress, id)
	if err != nil {
		return "", err
	}
	d, err := s.agent.Client.Get(ctx, key)
	if err != nil {
		return "", err
	}
	if len(d.Status.Addresses) == 0 {
		return "", fmt.Errorf("%s has no address", id)
	}
	return d.Status.Addresses[0], nil
}

// reach PEER tcp|udp HOST:PORT: what is sent comes back.
// reach PEER https INGRESS URL BACKEND: the URL, resolved to the ingress, is answered by the backend over HTTP/2.
func cmdReach(ts *testscript.TestScript, _ bool, args []string) {
	s := storyOf(ts)
	peer := s.peers[args[0]]
	if peer == nil {
		ts.Fatalf("there is no peer %s", args[0])
	}
	within(ts, func(ctx context.Context) error {
		return testbed.Eventually(ctx, func() error {
			attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			if args[1] == "https" {
				return s.get(attempt, peer, args[2], args[3], args[4])
			}
			return echo(attempt, peer, args[1], args[2])
		})
	})
}

func echo(ctx context.Context, peer *testbed.Peer, network, target string) error {
	conn, err := peer.Dial(ctx, network, target)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return err
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if string(answer) != "hello" {
		return fmt.Errorf("%s answers %q", target, answer)
	}
	return nil
}

// authority reads the certificate that clients of the ingresses trust.
func (s *story) authority(ctx context.Context) (string, error) {
	issuers, err := s.agent.Client.List(ctx, desired.KindIssuer)
	if err != nil || len(issuers) == 0 {
		return "", errors.Join(errors.New("there is no issuer"), err)
	}
	return issuers[0].Status.CertificatePEM, nil
}

func (s *story) get(ctx context.Context, peer *testbed.Peer, ingress, url, backend string) error {
	address, err := s.document(ctx, ingress)
	if err != nil {
		return err
	}
	ca, err := s.authority(ctx)
	if err != nil {
		return err
	}
	client := peer.HTTPClient(address, ca)
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if status, ok := strings.CutPrefix(backend, "status:"); ok {
		if got := fmt.Sprint(answer.StatusCode, " ", answer.Header.Get("Location")); strings.TrimSpace(got) != status {
			return fmt.Errorf("%s: %s", url, got)
		}
		return nil
	}
	var seen testbed.Seen
	if err := json.NewDecoder(answer.Body).Decode(&seen); err != nil {
		return fmt.Errorf("%s: %s: %w", url, answer.Status, err)
	}
	if seen.Backend != backend || seen.Host != request.URL.Host || answer.ProtoMajor != 2 {
		return fmt.Errorf("%s: backend %q saw host %q, answered over %s", url, seen.Backend, seen.Host, answer.Proto)
	}
	return nil
}

// devices NAME…: exactly these are on the tailnet.
func cmdDevices(ts *testscript.TestScript, _ bool, args []string) {
	s := storyOf(ts)
	slices.Sort(args)
	within(ts, func(ctx context.Context) error {
		devices, err := s.headscale.Devices(ctx)
		if err != nil {
			return err
		}
		names := []string{}
		for _, d := range devices {
			names = append(names, d.GivenName)
		}
		slices.Sort(names)
		if !slices.Equal(names, args) && len(names)+len(args) > 0 {
			return fmt.Errorf("the devices are %v, not %v", names, args)
		}
		return nil
	})
}

// same-device remember|check NAME: the device keeps its id and addresses.
func cmdSameDevice(ts *testscript.TestScript, _ bool, args []string) {
	s := storyOf(ts)
	within(ts, func(ctx context.Context) error {
		d, found, err := s.headscale.Device(ctx, args[1])
		if err != nil || !found {
			return errors.Join(fmt.Errorf("there is no device %s", args[1]), err)
		}
		now := d.ID + " " + d.NodeKey + " " + strings.Join(d.Addresses, " ")
		if args[0] == "remember" {
			ts.Setenv("DEVICE_"+args[1], now)
			return nil
		}
		if was := ts.Getenv("DEVICE_" + args[1]); was != now {
			return fmt.Errorf("the device was %s and is %s", was, now)
		}
		return nil
	})
}

// policy set FILE: as an admin would. policy is FILE: byte for byte. policy holds TEXT.
func cmdPolicy(ts *testscript.TestScript, neg bool, args []string) {
	s := storyOf(ts)
	within(ts, func(ctx context.Context) error {
		if args[0] == "set" {
			return s.headscale.SetPolicy(ctx, ts.ReadFile(args[1]))
		}
		return testbed.Eventually(ctx, func() error {
			text, err := s.headscale.Policy(ctx)
			if err != nil {
				return err
			}
			ok := args[0] == "is" && text == ts.ReadFile(args[len(args)-1]) || args[0] == "holds" && strings.Contains(text, args[1])
			if ok == neg {
				return fmt.Errorf("the policy is:\n%s", text)
			}
			return nil
		})
	})
}

// delete-device NAME: as an admin would.
func cmdDeleteDevice(ts *testscript.TestScript, _ bool, args []string) {
	s := storyOf(ts)
	within(ts, func(ctx context.Context) error {
		d, found, err := s.headscale.Device(ctx, args[0])
		if err != nil || !found {
			return errors.Join(fmt.Errorf("there is no device %s", args[0]), err)
		}
		return s.headscale.DeleteDevice(ctx, d.ID)
	})
}

// becomes INGRESS CONDITION True|False REASON: in time.
func cmdBecomes(ts *testscript.TestScript, _ bool, args []string) {
	s := storyOf(ts)
	within(ts, func(ctx context.Context) error {
		kind := desired.KindIngress
		if args[0] == "corp" {
			kind = desired.KindTailnet
		}
		key, err := desired.ParseID(kind, args[0])
		if err != nil {
			return err
		}
		return testbed.Eventually(ctx, func() error {
			d, err := s.agent.Client.Get(ctx, key)
			if err != nil {
				return err
			}
			c := d.Status.Conditions.Get(desired.ConditionType(args[1]), d.Revision)
			if string(c.Status) != args[2] || len(args) > 3 && string(c.Reason) != args[3] {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
	})
}

// forget INGRESS: as if somebody had deleted it behind Terraform's back.
func cmdForget(ts *testscript.TestScript, _ bool, args []string) {
	s := storyOf(ts)
	within(ts, func(ctx context.Context) error {
		key, err := desired.ParseID(desired.KindIngress, args[0])
		if err != nil {
			return err
		}
		if err := s.agent.Client.Delete(ctx, key); err != nil {
			return err
		}
		_, err = s.agent.Client.WaitGone(ctx, key)
		return err
	})
}

// no-secret: Headscale's API key is in no file that Terraform or the agent wrote.
func cmdNoSecret(ts *testscript.TestScript, _ bool, _ []string) {
	s := storyOf(ts)
	for _, root := range []string{ts.Getenv("WORK"), filepath.Join(s.dir, "agent")} {
		err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(text), s.headscale.APIKey) {
				err = fmt.Errorf("%s holds the API key", path)
			}
			return err
		})
		ts.Check(err)
	}
}
