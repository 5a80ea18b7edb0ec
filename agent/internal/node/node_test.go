package node

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

func TestRestartKeepsIdentityWithoutAKey(t *testing.T) {
	b := newBed(t)
	r := b.rig(t, "shop")
	r.start()
	first := r.awaitPhase(Running)
	if first.DNSName != "shop."+testbed.BaseDomain+"." || len(first.Addresses) == 0 || first.NameConflict != "" ||
		len(first.Tags) != 1 || first.Tags[0] != "tag:ingress" || first.StableID == "" || first.NodeKey == "" {
		t.Fatalf("seen %+v", first)
	}
	peer := b.peer(t)
	if err := echo(t.Context(), peer, first.Addresses[0].String(), patience); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if r.downs.Load() != 1 {
		t.Fatalf("Down was called %d times", r.downs.Load())
	}
	if err := os.RemoveAll(r.dir); err != nil { // it may be lost without losing the identity
		t.Fatal(err)
	}
	r.setMint(func(context.Context) (string, error) { return "hskey-auth-bad", nil })
	r.renew("shop")
	r.start()
	again := r.awaitPhase(Running)
	if again.Addresses[0] != first.Addresses[0] || again.NodeKey != first.NodeKey || again.StableID != first.StableID {
		t.Fatalf("was %+v, is %+v", first, again)
	}
	if n := r.minted.Load(); n != 1 {
		t.Fatalf("%d keys were minted, want one for both starts", n)
	}
	if up := r.up.Load(); up.Remembered {
		t.Fatal("the control plane is there, and the node serves from what it remembers")
	}
	// The server is new: peers are told at once, instead of finding out by a time-out.
	if err := echo(t.Context(), peer, again.Addresses[0].String(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
}

func TestEnrolsOnceAKeyIsToBeHad(t *testing.T) {
	b := newBed(t)
	r := b.rig(t, "shop")
	good := *r.mint.Load()
	r.setMint(func(context.Context) (string, error) { return "", errors.New("the API key was revoked") })
	r.start()
	if seen := r.awaitPhase(KeyUnavailable); !strings.Contains(seen.Message, "the API key was revoked") {
		t.Fatalf("seen %+v", seen)
	}
	// A key that was never one, and one that has expired.
	r.setMint(func(context.Context) (string, error) { return "hskey-auth-abcdefghijkl-0123456789", nil })
	if seen := r.awaitPhase(KeyRefused); strings.Contains(seen.Message, "hskey-") {
		t.Fatalf("the key is in %q", seen.Message)
	}
	r.setMint(func(ctx context.Context) (string, error) { return b.mint(ctx, "tag:ingress", -time.Hour) })
	refusals := r.minted.Load()
	r.await("refusal of an expired key", func(o Observation) bool { return o.Phase == KeyRefused && r.minted.Load() > refusals+1 })
	r.setMint(good)
	r.awaitPhase(Running)
	if log := r.log.String(); strings.Contains(log, "hskey-auth") {
		t.Fatal("a key is in the log")
	}
}

func TestEnrolsWhenTheControlPlaneComes(t *testing.T) {
	b := newBed(t)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	r := b.rig(t, "shop")
	r.start()
	r.awaitPhase(ControlUnreachable)
	if n := r.minted.Load(); n != 0 {
		t.Fatalf("%d keys were asked for though nobody is there to take one", n)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitPhase(Running)
}

func TestReenrolsADeviceThatWasDeleted(t *testing.T) {
	b := newBed(t)
	r := b.rig(t, "shop")
	r.start()
	first := r.awaitPhase(Running)
	if err := b.DeleteDevice(t.Context(), first.StableID); err != nil {
		t.Fatal(err)
	}
	r.node.Reenrol()
	second := r.await("other device", func(o Observation) bool { return o.Phase == Running && o.StableID != first.StableID })
	if second.NameConflict != "" || second.NodeKey == first.NodeKey || r.minted.Load() != 2 {
		t.Fatalf("seen %+v after %d keys", second, r.minted.Load())
	}
	// One that was deleted while the node was stopped is found out at the start.
	r.stop()
	if err := b.DeleteDevice(t.Context(), second.StableID); err != nil {
		t.Fatal(err)
	}
	r.renew("shop")
	r.start()
	third := r.awaitPhase(Running)
	if third.StableID == second.StableID || r.minted.Load() != 3 {
		t.Fatalf("seen %+v after %d keys", third, r.minted.Load())
	}
}

// A Headscale that expired a tagged device refuses it for good: what to do is told, and doing it is enough.
func TestExpiredDeviceIsToldAndComesBackOnceDeleted(t *testing.T) {
	b := newBed(t)
	r := b.rig(t, "shop")
	r.start()
	first := r.awaitPhase(Running)
	if err := b.call(t.Context(), http.MethodPost, "/api/v1/node/"+first.StableID+"/expire", struct{}{}, nil); err != nil {
		t.Fatal(err)
	}
	if seen := r.awaitPhase(KeyRefused); !strings.Contains(seen.Message, "delete the device") {
		t.Fatalf("seen %+v", seen)
	}
	if r.downs.Load() != 1 {
		t.Fatalf("Down was called %d times", r.downs.Load())
	}
	if err := b.DeleteDevice(t.Context(), first.StableID); err != nil {
		t.Fatal(err)
	}
	if again := r.awaitPhase(Running); again.NameConflict != "" || r.ups.Load() != 2 {
		t.Fatalf("seen %+v, up %d times", again, r.ups.Load())
	}
}

func TestNameThatIsTakenIsTold(t *testing.T) {
	b := newBed(t)
	holder := b.rig(t, "shop")
	holder.start()
	holder.awaitPhase(Running)
	r := b.rig(t, "shop")
	r.start()
	seen := r.awaitPhase(Running)
	if !strings.HasPrefix(seen.DNSName, "shop-1.") || !strings.Contains(seen.NameConflict, "shop-1") || !strings.Contains(seen.NameConflict, "delete or rename") {
		t.Fatalf("seen %+v", seen)
	}
}

func TestIdentityThatCannotBeKeptIsNotServed(t *testing.T) {
	b := newBed(t)
	r := b.rig(t, "shop")
	full := errors.New("the disk is full")
	r.state.setFail(func(op, _ string) error {
		if op == "write" {
			return full
		}
		return nil
	})
	r.start()
	seen := r.awaitPhase(StateUnavailable)
	if !strings.Contains(seen.Message, full.Error()) || r.ups.Load() != 0 {
		t.Fatalf("seen %+v, up %d times", seen, r.ups.Load())
	}
	r.state.setFail(nil)
	r.awaitPhase(Running)
}

func TestStateThatCannotBeReadIsTold(t *testing.T) {
	b := newBed(t)
	r := b.rig(t, "shop")
	r.start()
	first := r.awaitPhase(Running)
	r.stop()
	// What is ours can be read, and what is tsnet's cannot: its start fails.
	r.state.setFail(func(op, key string) error {
		if op == "read" && !strings.HasPrefix(key, "postern-") {
			return errors.New("the store is closed")
		}
		return nil
	})
	r.renew("shop")
	r.start()
	r.await("failed start", func(o Observation) bool { return strings.Contains(o.Message, "the store is closed") })
	r.state.setFail(nil)
	if again := r.awaitPhase(Running); again.Addresses[0] != first.Addresses[0] {
		t.Fatalf("the address was %v and is %v", first.Addresses, again.Addresses)
	}
}

func TestNameConflict(t *testing.T) {
	for given, conflict := range map[string]bool{
		"shop.tail.test.": false, "Shop.tail.test.": false, "shop-1.tail.test.": true, "shop-12.tail.test.": true,
		"store.tail.test.": true, "shop-a.tail.test.": true,
	} {
		if got := nameConflict("shop", given); (got != "") != conflict {
			t.Errorf("%s: %q", given, got)
		}
	}
}
