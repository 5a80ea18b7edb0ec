package node

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
	"tailscale.com/envknob"
)

func TestEnvironmentCredentialsAreIgnored(t *testing.T) {
	b := newBed(t)
	for _, name := range []string{
		"TS_AUTHKEY", "TS_AUTH_KEY", "TS_CLIENT_SECRET", "TS_CLIENT_ID", "TS_ID_TOKEN", "TS_AUDIENCE", "TS_CONTROL_URL", "TSNET_FORCE_LOGIN",
	} {
		t.Setenv(name, "from-the-environment")
	}
	if err := PrepareProcess(); err != nil {
		t.Fatal(err)
	}
	for _, pair := range os.Environ() {
		if strings.Contains(pair, "from-the-environment") {
			t.Errorf("still set: %s", pair)
		}
	}
	if !envknob.NoLogsNoSupport() {
		t.Error("logs are sent away")
	}
	r := b.rig(t, "shop")
	r.start()
	r.awaitPhase(Running)
	r.stop()
	r.renew("shop")
	r.start()
	r.awaitPhase(Running)
}

func TestMemoryLimitFollowsTheNodes(t *testing.T) {
	const mib = 1 << 20
	if got := MemoryLimit(0); got != 256*mib {
		t.Errorf("no node: %d", got)
	}
	if got := MemoryLimit(300); got != (300*40+256)*mib {
		t.Errorf("300 nodes: %d", got)
	}
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "1GiB")
	ApplyMemoryLimit(7)
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("the operator's limit was replaced by %d", got)
	}
	t.Setenv("GOMEMLIMIT", "")
	ApplyMemoryLimit(7)
	if got := debug.SetMemoryLimit(-1); got != MemoryLimit(7) {
		t.Errorf("the limit is %d", got)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestStartsAndStopsLeakNothing(t *testing.T) {
	b := newBed(t)
	r := b.rig(t, "shop")
	cycle := func() {
		r.renew("shop")
		r.start()
		r.awaitPhase(Running)
		r.stop()
	}
	cycle() // what is made once for the process
	ignore, files := goleak.IgnoreCurrent(), openFiles(t)
	for range 30 {
		cycle()
	}
	verifyNoLeak(t, ignore)
	awaitFiles(t, files)
}

func TestFailedStartsLeakNothing(t *testing.T) {
	b := newBed(t)
	r := b.rig(t, "shop")
	fails := func() {
		r.renew("shop")
		r.start()
		r.await("failed start", func(o Observation) bool { return strings.Contains(o.Message, "the store is closed") })
		r.stop()
	}
	r.state.setFail(func(op, key string) error {
		if op == "read" && !strings.HasPrefix(key, "postern-") {
			return errors.New("the store is closed")
		}
		return nil
	})
	fails()
	ignore, files := goleak.IgnoreCurrent(), openFiles(t)
	for range 5 {
		fails()
	}
	verifyNoLeak(t, ignore)
	awaitFiles(t, files)
}

// awaitFiles waits until no more files are open than before: the kernel closes some after Close returned.
func awaitFiles(t *testing.T, want int) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for openFiles(t) > want {
		if time.Now().After(end) {
			t.Fatalf("%d files are open, before it were %d", openFiles(t), want)
		}
		<-tick.C
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"go to: https://hs.example/register/abc-def now":         "go to: <redacted> now",
		"visit https://login.tailscale.com/a/123abc":             "visit <redacted>",
		"key tskey-auth-kX-123 is bad":                           "key <redacted> is bad",
		"invalid hskey-auth-aa-bb_cc":                            "invalid <redacted>",
		"privkey:0123abcd":                                       "<redacted>",
		`Get "http://127.0.0.1:1/key?v=142": connection refused`: `Get "http://127.0.0.1:1/key?v=142": connection refused`,
	} {
		if got := redact(in); got != want {
			t.Errorf("%q became %q", in, got)
		}
	}
}

// verifyNoLeak waits for tsnet's own goroutines, which end by their timeouts.
func verifyNoLeak(t *testing.T, ignore goleak.Option) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := testbed.Eventually(ctx, func() error { return goleak.Find(ignore) }); err != nil {
		t.Error(err)
	}
}
