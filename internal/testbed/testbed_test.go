package testbed

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	ApplyEnv()
	os.Exit(m.Run())
}

func TestPeersTalkAndSurviveARestartOfHeadscale(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	h, err := StartHeadscale(ctx, HeadscaleOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	}()
	key, err := h.AuthKey(ctx, "", "tag:peer")
	if err != nil {
		t.Fatal(err)
	}
	var peers []*Peer
	for _, name := range []string{"alpha", "beta"} {
		p, err := StartPeer(ctx, h, name, key, filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		peers = append(peers, p)
	}
	listener, err := peers[0].server.Listen("tcp", ":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(conn, "hello")
				_ = conn.Close()
			}()
		}
	}()
	talk := func() error {
		conn, err := peers[1].Dial(ctx, "tcp", "alpha:7000")
		if err != nil {
			return err
		}
		defer conn.Close()
		text, err := io.ReadAll(conn)
		if err == nil && string(text) != "hello" {
			err = fmt.Errorf("got %q", text)
		}
		return err
	}
	if err := talk(); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := talk(); err != nil {
		t.Fatalf("with Headscale away: %v", err)
	}
	if err := h.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if devices, err := h.Devices(ctx); err != nil || len(devices) != 2 {
		t.Fatalf("%v %v", devices, err)
	}
}
