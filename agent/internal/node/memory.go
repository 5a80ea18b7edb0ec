package node

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"go4.org/mem"
	"tailscale.com/client/local"
	"tailscale.com/ipn/ipnlocal/netmapcache"
	"tailscale.com/tailcfg"
	"tailscale.com/tsnet"
	"tailscale.com/types/key"
	"tailscale.com/types/netmap"
	"tailscale.com/wgengine/magicsock"
)

// A node that starts while its control plane is away knows nobody, and nobody expects it to have changed (A3). Three things
// carried over from the server before bring it back at once: the network map, which tsnet reads from a cache when a knob
// that only the control plane sets says so; the discovery key, since peers drop discovery messages under a key that the
// control plane did not tell them of, and tsnet makes a new one at each start; and the UDP port, where peers still send to.

// memory is what every server of a node has in common.
type memory struct {
	port  uint16
	disco key.DiscoPrivate
	// netmap says that a network map is in the cache.
	netmap bool
}

// storedMemory is memory in the State: the discovery key is secret.
type storedMemory struct {
	Port  uint16 `json:"port"`
	Disco []byte `json:"disco"`
}

const (
	// firstPort starts the range of dynamic ports (RFC 6335).
	firstPort  = 49152
	discoBytes = 32
)

// recall gives what the node's servers have in common, made at the first call.
func (n *Node) recall(ctx context.Context) (memory, error) {
	var stored storedMemory
	value, err := n.config.State.Read(ctx, stateMemory)
	if err == nil {
		err = json.Unmarshal(value, &stored)
	}
	if err != nil && !errors.Is(err, ErrNoState) {
		return memory{}, fmt.Errorf("reading the node's state: %w", err)
	}
	if stored.Port == 0 || len(stored.Disco) != discoBytes {
		stored = storedMemory{Port: uint16(firstPort + mathrand.N(65535-firstPort)), Disco: make([]byte, discoBytes)}
		if _, err := rand.Read(stored.Disco); err != nil {
			return memory{}, fmt.Errorf("making a discovery key: %w", err)
		}
		// Clamped as X25519 wants it (RFC 7748, section 5).
		stored.Disco[0] &= 248
		stored.Disco[31] = stored.Disco[31]&127 | 64
		if value, err = json.Marshal(stored); err != nil {
			return memory{}, fmt.Errorf("encoding the node's state: %w", err)
		}
		if err := n.config.State.Write(ctx, stateMemory, value); err != nil {
			return memory{}, fmt.Errorf("writing the node's state: %w", err)
		}
	}
	maps, err := filepath.Glob(n.mapFolder("*"))
	return memory{port: stored.Port, disco: key.DiscoPrivateFromRaw32(mem.B(stored.Disco)), netmap: err == nil && len(maps) > 0}, nil
}

func (n *Node) mapFolder(profile string) string {
	return filepath.Join(n.config.Dir, "profile-data", profile, "netmap-cache")
}

// restore gives a server that has not started yet what the node's servers have in common.
func (m memory) restore(server *tsnet.Server, log *slog.Logger) {
	sys := server.Sys()
	socket := sys.MagicSock.Get()
	if err := setDisco(socket, m.disco); err != nil {
		log.Warn("starting with a new discovery key", "err", err)
		return
	}
	sys.Tun.Get().SetDiscoKey(socket.DiscoPublicKey())
	if m.netmap {
		sys.ControlKnobs().CacheNetworkMaps.Store(true)
	}
}

// remember saves the network map for the next server.
func (n *Node) remember(ctx context.Context, client *local.Client) error {
	told, err := local.GetDebugResultJSON[*netmap.NetworkMap](ctx, client, "current-netmap")
	if err != nil {
		return fmt.Errorf("reading the network map: %w", err)
	}
	if told == nil || !told.SelfNode.Valid() {
		return nil
	}
	profile, _, err := client.ProfileStatus(ctx)
	if err != nil {
		return fmt.Errorf("reading the node's profile: %w", err)
	}
	// The cache is read only for a node that has this attribute, which Headscale does not give.
	self := told.SelfNode.AsStruct()
	if self.CapMap == nil {
		self.CapMap = tailcfg.NodeCapMap{}
	}
	self.CapMap[tailcfg.NodeAttrCacheNetworkMaps] = nil
	told.SelfNode = self.View()
	folder := n.mapFolder(string(profile.ID))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("making the map's folder: %w", err)
	}
	if err := netmapcache.NewCache(netmapcache.FileStore(folder)).Store(ctx, told); err != nil {
		return fmt.Errorf("saving the network map: %w", err)
	}
	return nil
}

// setDisco sets the discovery key of a socket, which has no setter that others may call. A release of tsnet that moves it
// fails the test of a start without the control plane, and until then costs no more than that start.
func setDisco(socket *magicsock.Conn, disco key.DiscoPrivate) error {
	field := reflect.ValueOf(socket).Elem().FieldByName("discoAtomic")
	if !field.IsValid() {
		return errors.New("this release of tsnet keeps its discovery key elsewhere")
	}
	set := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).MethodByName("Set")
	if !set.IsValid() {
		return errors.New("this release of tsnet sets its discovery key otherwise")
	}
	set.Call([]reflect.Value{reflect.ValueOf(disco)})
	return nil
}

const (
	// announceRounds bounds how often peers are called.
	announceRounds = 5
	announcePause  = 2 * time.Second
	announceAtOnce = 16
)

// announce calls every peer, so that those who still send to the old server's session begin a new one at once instead of
// when theirs times out.
func announce(ctx context.Context, client *local.Client) {
	answered := map[string]bool{}
	var mu sync.Mutex
	for range announceRounds {
		status, err := client.Status(ctx)
		if err != nil {
			return
		}
		slots := make(chan struct{}, announceAtOnce)
		var calls sync.WaitGroup
		for _, peer := range status.Peer {
			if len(peer.TailscaleIPs) == 0 || answered[string(peer.ID)] {
				continue
			}
			slots <- struct{}{}
			calls.Go(func() {
				defer func() { <-slots }()
				attempt, cancel := context.WithTimeout(ctx, announcePause)
				defer cancel()
				if _, err := client.Ping(attempt, peer.TailscaleIPs[0], tailcfg.PingTSMP); err == nil {
					mu.Lock()
					answered[string(peer.ID)] = true
					mu.Unlock()
				}
			})
		}
		calls.Wait()
		select {
		case <-ctx.Done():
			return
		case <-time.After(announcePause):
		}
	}
}
