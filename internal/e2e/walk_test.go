package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// steps is how many random steps a walk takes.
const steps = 30

// Whatever is created, changed, deleted and created again, in whatever order, nothing is left behind: no goroutine, no
// descriptor, no device, no policy entry (A9, P11).
func TestWalkLeavesNothingBehind(t *testing.T) {
	c := startChain(t)
	web, echo := httpBackend(t, "web"), backend(t, testbed.StartEcho)
	before := c.settled(t)
	random := rand.New(rand.NewPCG(5, 6))
	there := map[string]bool{}
	for step := range steps {
		name := fmt.Sprintf("app%d", random.IntN(4))
		in := memberIngress(name, map[string]desired.Expose{"db": tcpExpose(int64(5000+random.IntN(5)), echo.Address)})
		if random.IntN(2) == 0 {
			in.Exposes["web"] = httpExpose(web.Address)
		}
		var err error
		switch {
		case !there[name]:
			_, err = c.agent.Client.Create(deadline(t, time.Minute), in.Key(), declaration(t, in, nil))
			there[name] = true
		case random.IntN(3) == 0:
			err = c.agent.Client.Delete(deadline(t, time.Minute), in.Key())
			if err == nil {
				_, err = c.agent.Client.WaitGone(deadline(t, time.Minute), in.Key())
			}
			delete(there, name)
		default:
			_, err = c.update(t, in)
		}
		if err != nil {
			t.Fatalf("step %d, %s: %v", step, name, err)
		}
		if d, err := c.agent.Client.Get(deadline(t, time.Minute), in.Key()); err == nil && random.IntN(2) == 0 {
			c.ready(t, in.Key(), d.Revision)
		}
	}
	for name := range there {
		key := memberIngress(name, nil).Key()
		if err := c.agent.Client.Delete(deadline(t, time.Minute), key); err != nil {
			t.Fatal(err)
		}
		if _, err := c.agent.Client.WaitGone(deadline(t, time.Minute), key); err != nil {
			t.Fatal(err)
		}
	}
	if devices, err := c.headscale.Devices(deadline(t, time.Minute)); err != nil || len(devices) != 0 {
		t.Errorf("devices are left: %+v: %v", devices, err)
	}
	if policy, err := c.headscale.Policy(deadline(t, time.Minute)); err != nil || strings.Contains(policy, "ingress") {
		t.Errorf("policy entries are left:\n%s\n%v", policy, err)
	}
	err := testbed.Eventually(deadline(t, time.Minute), func() error {
		now := c.usage(t)
		if now.goroutines > before.goroutines || now.files > before.files {
			return fmt.Errorf("the agent had %+v and has %+v", before, now)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

type usage struct{ goroutines, files int }

// usage asks the agent's metrics.
func (c *chain) usage(t *testing.T) usage {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(c.agent.Endpoint, "unix://"))
	}}}
	answer, err := client.Get("http://postern" + api.PathMetrics)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) int {
		for line := range strings.SplitSeq(string(text), "\n") {
			if value, ok := strings.CutPrefix(line, name+" "); ok {
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Fatal(err)
				}
				return int(n)
			}
		}
		t.Fatalf("there is no metric %s", name)
		return 0
	}
	return usage{goroutines: read("go_goroutines"), files: read("process_open_fds")}
}

// settled is the usage of an agent at rest: the most of several looks, since connections to the control plane come and go.
func (c *chain) settled(t *testing.T) usage {
	t.Helper()
	var most usage
	for range 20 {
		now := c.usage(t)
		most.goroutines, most.files = max(most.goroutines, now.goroutines), max(most.files, now.files)
	}
	return most
}
