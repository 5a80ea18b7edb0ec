package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/posterndev/terraform-provider-postern/internal/api"
)

// Config is the agent's configuration file, in YAML. Every field may be left out: without a file the agent runs for a trial,
// with its state in the user's state folder and its API on a Unix socket.
type Config struct {
	// StateDir holds the store, its key, and what nodes keep on disk.
	StateDir string `yaml:"state_dir"`
	// Socket is the API's Unix socket.
	Socket string `yaml:"socket"`
	// SocketMode is the socket's permissions in octal: who may open it may do everything.
	SocketMode string `yaml:"socket_mode"`
	// Listen is host:port for the API over TLS with bearer tokens; empty means none.
	Listen string `yaml:"listen"`
	// CertificateFile and KeyFile are for Listen; without them a self-signed pair is made in StateDir.
	CertificateFile string `yaml:"certificate_file"`
	KeyFile         string `yaml:"key_file"`
	// MetricsListen is host:port for /healthz, /readyz and /metrics, and nothing else, over plain HTTP; empty means none.
	MetricsListen string `yaml:"metrics_listen"`
	// LogLevel is debug, info, warn or error, and LogFormat text or json.
	LogLevel  string `yaml:"log_level"`
	LogFormat string `yaml:"log_format"`
	// Drain is how long running requests and connections may go on when the agent stops, as a Go duration.
	Drain string `yaml:"drain"`

	mode  fs.FileMode
	level slog.Level
	drain time.Duration
}

// LoadConfig reads a configuration file, or gives the defaults for an empty path. What is wrong it says by name.
func LoadConfig(path string) (Config, error) {
	var c Config
	if path != "" {
		file, err := os.Open(path)
		if err != nil {
			return c, fmt.Errorf("opening the configuration: %w", err)
		}
		defer file.Close()
		decoder := yaml.NewDecoder(file)
		decoder.KnownFields(true)
		if err := decoder.Decode(&c); err != nil {
			return c, fmt.Errorf("reading the configuration %s: %w", path, err)
		}
	}
	c.fill()
	if err := c.check(); err != nil {
		return c, fmt.Errorf("configuration %s: %w", orDefault(path, "(defaults)"), err)
	}
	return c, nil
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (c *Config) fill() {
	c.StateDir = orDefault(c.StateDir, defaultStateDir())
	c.Socket = orDefault(c.Socket, DefaultSocket(c.StateDir))
	c.SocketMode = orDefault(c.SocketMode, "0600")
	c.LogLevel, c.LogFormat = orDefault(c.LogLevel, "info"), orDefault(c.LogFormat, "text")
	c.Drain = orDefault(c.Drain, "10s")
}

func defaultStateDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/postern"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "postern")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), "postern")
	}
	return filepath.Join(home, ".local", "state", "postern")
}

// DefaultSocket is where the socket lies when nothing says so: the system's place for root, else in the state folder.
func DefaultSocket(stateDir string) string {
	if os.Geteuid() == 0 {
		return api.DefaultSocket
	}
	return filepath.Join(orDefault(stateDir, defaultStateDir()), "postern.sock")
}

// maxSocketPath is the longest path that a Unix socket's address holds, without its end (unix(7)).
const maxSocketPath = 107

func (c *Config) check() error {
	var errs []error
	bad := func(field, value, rule string) { errs = append(errs, fmt.Errorf("%s: %q: %s", field, value, rule)) }
	for field, path := range map[string]string{"state_dir": c.StateDir, "socket": c.Socket, "certificate_file": c.CertificateFile, "key_file": c.KeyFile} {
		if path != "" && !filepath.IsAbs(path) {
			bad(field, path, "a path is absolute; start it with /")
		}
	}
	if len(c.Socket) > maxSocketPath {
		bad("socket", c.Socket, fmt.Sprintf("a socket's path has at most %d bytes; choose a shorter one", maxSocketPath))
	}
	mode, err := strconv.ParseUint(c.SocketMode, 8, 32)
	if err != nil || mode > 0o777 {
		bad("socket_mode", c.SocketMode, `permissions are octal; write "0600" or "0660"`)
	}
	c.mode = fs.FileMode(mode)
	if (c.CertificateFile == "") != (c.KeyFile == "") {
		bad("certificate_file", c.CertificateFile, "certificate_file and key_file come together; set both or none")
	}
	for field, address := range map[string]string{"listen": c.Listen, "metrics_listen": c.MetricsListen} {
		if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
			bad(field, address, "an address is host:port; write 0.0.0.0:8443 or 127.0.0.1:9464")
		}
	}
	if err := c.level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		bad("log_level", c.LogLevel, "a level is debug, info, warn or error")
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		bad("log_format", c.LogFormat, "a format is text or json")
	}
	if c.drain, err = time.ParseDuration(c.Drain); err != nil || c.drain < 0 {
		bad("drain", c.Drain, "a duration is a number and a unit; write 10s")
	}
	return errors.Join(errs...)
}

// Logger gives the logger that the configuration asks for, writing to standard error.
func (c Config) Logger() *slog.Logger {
	options := &slog.HandlerOptions{Level: c.level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}
