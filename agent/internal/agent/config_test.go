package agent

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigRefusesByName(t *testing.T) {
	long := "/" + strings.Repeat("x", maxSocketPath)
	for text, want := range map[string]string{
		"state_dir: here":               `state_dir: "here": a path is absolute`,
		"socket: " + long:               "at most 107 bytes",
		"socket_mode: rw":               `socket_mode: "rw": permissions are octal`,
		"certificate_file: /a":          "certificate_file and key_file come together",
		"listen: everywhere":            `listen: "everywhere": an address is host:port`,
		"metrics_listen: \"9464\"":      `metrics_listen: "9464": an address is host:port`,
		"log_level: loud":               `log_level: "loud": a level is debug, info, warn or error`,
		"log_format: xml":               `log_format: "xml": a format is text or json`,
		"drain: soon":                   `drain: "soon": a duration is a number and a unit`,
		"drain: -1s":                    `drain: "-1s"`,
		"unheard: of":                   "field unheard not found",
		"socket: /a\nsocket_mode: 0999": `socket_mode: "0999"`,
	} {
		path := filepath.Join(t.TempDir(), "postern.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadConfig(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestDefaultsAreEnoughForATrial(t *testing.T) {
	c, err := LoadConfig("")
	if err != nil {
		t.Fatal(err)
	}
	if c.StateDir == "" || c.Socket == "" || c.Listen != "" || c.MetricsListen != "" || c.mode != 0o600 || c.drain == 0 {
		t.Fatalf("%+v", c)
	}
}

func TestSocketTakesThePlaceOfADeadOneOnly(t *testing.T) {
	dir, err := os.MkdirTemp("", "postern") // short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c := Config{Socket: filepath.Join(dir, "s"), mode: 0o600}
	if err := os.WriteFile(c.Socket, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenSocket(c); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Fatalf("over a file: %v", err)
	}
	if text, err := os.ReadFile(c.Socket); err != nil || string(text) != "mine" {
		t.Fatalf("the file was touched: %q %v", text, err)
	}
	if err := os.Remove(c.Socket); err != nil {
		t.Fatal(err)
	}
	first, err := listenSocket(c)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(c.Socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
	if _, err := listenSocket(c); err == nil || !strings.Contains(err.Error(), "another agent answers") {
		t.Fatalf("beside a living one: %v", err)
	}
	unix, ok := first.(*net.UnixListener)
	if !ok {
		t.Fatalf("%T", first)
	}
	unix.SetUnlinkOnClose(false) // as kill -9 leaves it
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := listenSocket(c)
	if err != nil {
		t.Fatalf("in place of a dead one: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}
