package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tailscale.com/types/netmap"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// knows reports whether the memory holds so many peers.
func (m memory) knows(peers int) error {
	var told netmap.NetworkMap
	if len(m.Map) == 0 {
		return errors.New("nothing is kept")
	}
	if err := json.Unmarshal(m.Map, &told); err != nil {
		return err
	}
	if len(told.Peers) != peers {
		return fmt.Errorf("%d peers are kept, want %d", len(told.Peers), peers)
	}
	return nil
}

// awaitRule waits until a port stands in the packet filter that is kept.
func (r *rig) awaitRule(ctx context.Context, port string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := testbed.Eventually(ctx, func() error {
		m, err := r.node.recall(ctx)
		if err != nil {
			return err
		}
		var told struct{ PacketFilterRules json.RawMessage }
		if err := json.Unmarshal(m.Map, &told); err != nil {
			return err
		}
		if !strings.Contains(string(told.PacketFilterRules), port) {
			return fmt.Errorf("rules %s", told.PacketFilterRules)
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
}

func TestMemoryOfAnotherControlPlaneIsNotUsed(t *testing.T) {
	m := memory{ControlURL: "https://a.example", Profile: "p", Disco: make([]byte, discoBytes), Map: json.RawMessage(`{}`), Saved: time.Now()}
	if !m.usable("https://a.example") || m.usable("https://b.example") {
		t.Fatal("a memory is for its own control plane alone")
	}
	for name, change := range map[string]func(*memory){
		"profile": func(m *memory) { m.Profile = "" },
		"key":     func(m *memory) { m.Disco = m.Disco[:1] },
		"map":     func(m *memory) { m.Map = nil },
	} {
		less := m
		change(&less)
		if less.usable(m.ControlURL) {
			t.Errorf("usable without its %s", name)
		}
	}
}

func TestMemoryComesBackAsItWas(t *testing.T) {
	m := memory{ControlURL: "https://a.example", Port: 41641, Profile: "p", Disco: []byte("0123456789abcdef0123456789abcdef"), Map: json.RawMessage(`{"Domain":"x"}`)}
	value, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeMemory(value)
	if err != nil || back.Port != m.Port || string(back.Map) != string(m.Map) || back.discoKey().Public() != m.discoKey().Public() {
		t.Fatalf("%+v %v", back, err)
	}
	fresh, err := back.renewed()
	if err != nil || fresh.Port != m.Port || fresh.discoKey().Public() == m.discoKey().Public() || len(fresh.Map) != 0 {
		t.Fatalf("%+v %v", fresh, err)
	}
}

func FuzzDecodeMemory(f *testing.F) {
	good, err := memory{Port: 1}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, value []byte) {
		m, err := decodeMemory(value)
		if err != nil && m.usable(m.ControlURL) {
			t.Fatal("what cannot be read is used")
		}
	})
}
