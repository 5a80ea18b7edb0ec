package node

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go4.org/mem"
	"tailscale.com/client/local"
	"tailscale.com/ipn/ipnlocal/netmapcache"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
	"tailscale.com/types/netmap"
)

// memory is what a server needs to serve without the control plane (A3). Without it a node knows nobody, and nobody expects
// it to have changed: it lacks the network map, which tsnet reads from a cache that only some control planes switch on; the
// discovery key, which peers know it by; and the UDP port, where peers still send to. It lies in the State, sealed: the
// discovery key is secret, and who can change the map decides who is let in.
type memory struct {
	Saved      time.Time `json:"saved"`
	ControlURL string    `json:"control_url"`
	Port       uint16    `json:"port"`
	Disco      []byte    `json:"disco"`
	// Profile is tsnet's name for the identity.
	Profile string `json:"profile"`
	// Map is a netmap.NetworkMap as tsnet encodes it. It holds no private key.
	Map json.RawMessage `json:"map"`
}

const discoBytes = 32

// recall reads what the last server was told. What cannot be understood counts as nothing.
func (n *Node) recall(ctx context.Context) (memory, error) {
	value, err := n.config.State.Read(ctx, stateMemory)
	if errors.Is(err, ErrNoState) {
		return memory{}, nil
	}
	if err != nil {
		return memory{}, &fault{phase: StateUnavailable, err: fmt.Errorf("reading the node's state: %w", err)}
	}
	m, err := decodeMemory(value)
	if err != nil {
		n.config.Log.Warn("what the node remembers cannot be read, so it needs the control plane to start", "hostname", n.config.Hostname, "err", err)
	}
	return m, nil
}

func decodeMemory(value []byte) (memory, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return memory{}, fmt.Errorf("unpacking the network map: %w", err)
	}
	const longest = 256 << 20
	text, err := io.ReadAll(io.LimitReader(unzipped, longest))
	if err != nil {
		return memory{}, fmt.Errorf("unpacking the network map: %w", err)
	}
	var m memory
	if err := json.Unmarshal(text, &m); err != nil {
		return memory{}, fmt.Errorf("decoding the network map: %w", err)
	}
	return m, nil
}

func (m memory) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding the network map: %w", err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err = w.Write(text)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("packing the network map: %w", err)
	}
	return zipped.Bytes(), nil
}

// usable reports whether a server can start from the memory alone.
func (m memory) usable(controlURL string) bool {
	return m.ControlURL == controlURL && m.Profile != "" && len(m.Disco) == discoBytes && len(m.Map) > 0
}

// renewed is for a start with the control plane: the port stays, and the discovery key is new, by which the control plane
// has peers begin new sessions with the new server at once.
func (m memory) renewed() (memory, error) {
	disco := make([]byte, discoBytes)
	if _, err := rand.Read(disco); err != nil {
		return memory{}, fmt.Errorf("making a discovery key: %w", err)
	}
	// Clamped as X25519 wants it (RFC 7748, section 5).
	disco[0] &= 248
	disco[31] = disco[31]&127 | 64
	return memory{Port: m.Port, Disco: disco}, nil
}

func (m memory) discoKey() key.DiscoPrivate { return key.DiscoPrivateFromRaw32(mem.B(m.Disco)) }

// place lays the map where tsnet looks for one, and has it find none where the control plane is to be waited for.
func (m memory) place(ctx context.Context, dir string, remembered bool) error {
	profiles := filepath.Join(dir, "profile-data")
	old, err := filepath.Glob(filepath.Join(profiles, "*", "netmap-cache"))
	if err != nil {
		return fmt.Errorf("finding old network maps: %w", err)
	}
	for _, folder := range old {
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("removing an old network map: %w", err)
		}
	}
	if !remembered {
		return nil
	}
	told := new(netmap.NetworkMap)
	if err := json.Unmarshal(m.Map, told); err != nil {
		return fmt.Errorf("decoding the network map: %w", err)
	}
	// A cached map is kept only for a node with this attribute, which a policy has to give.
	self := told.SelfNode.AsStruct()
	if self == nil {
		return errors.New("decoding the network map: it has no node of its own")
	}
	if self.CapMap == nil {
		self.CapMap = tailcfg.NodeCapMap{}
	}
	self.CapMap[tailcfg.NodeAttrCacheNetworkMaps] = nil
	told.SelfNode = self.View()
	folder := filepath.Join(profiles, filepath.Base(m.Profile), "netmap-cache")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("making the network map's folder: %w", err)
	}
	if err := netmapcache.NewCache(netmapcache.FileStore(folder)).Store(ctx, told); err != nil {
		return fmt.Errorf("laying out the network map: %w", err)
	}
	return nil
}

// remember keeps what the server was told, where it comes from the control plane and is new.
func (s *session) remember(ctx context.Context) error {
	if !s.discoSet {
		return nil // peers would not find the next server
	}
	told, err := local.GetDebugResultJSON[json.RawMessage](ctx, s.client, "current-netmap")
	if err != nil {
		return fmt.Errorf("reading the network map: %w", err)
	}
	var origin struct{ Cached bool }
	if err := json.Unmarshal(told, &origin); err != nil {
		return fmt.Errorf("decoding the network map: %w", err)
	}
	digest := sha256.Sum256(told)
	if origin.Cached || digest == s.remembered {
		return nil
	}
	profile, _, err := s.client.ProfileStatus(ctx)
	if err != nil {
		return fmt.Errorf("reading the node's profile: %w", err)
	}
	m := s.start.memory
	m.Saved, m.ControlURL, m.Profile, m.Map = time.Now(), s.node.config.ControlURL, string(profile.ID), told
	if socket, ok := s.server.Sys().MagicSock.GetOK(); ok {
		m.Port = socket.LocalPort()
	}
	value, err := m.encode()
	if err != nil {
		return err
	}
	if err := s.node.config.State.Write(ctx, stateMemory, value); err != nil {
		return fmt.Errorf("keeping the network map: %w", err)
	}
	s.remembered = digest
	return nil
}
