package node

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"tailscale.com/types/logger"
)

// secrets are links that log someone in, and keys. What a control plane sends may quote either.
var secrets = regexp.MustCompile(`https?://\S*/(?:a|register|auth|login)/[^\s"']+|\b(?:tskey|hskey)-[A-Za-z0-9_-]+|\b(?:privkey|nlpriv):[0-9a-f]+`)

// redact takes secrets out of a text.
func redact(text string) string { return secrets.ReplaceAllString(text, "<redacted>") }

// backendLog passes tsnet's own log on, which is for its developers.
func backendLog(log *slog.Logger, source string) logger.Logf {
	return func(format string, args ...any) {
		if !log.Enabled(context.Background(), slog.LevelDebug) {
			return
		}
		log.Debug(redact(strings.TrimSpace(fmt.Sprintf(format, args...))), "source", source)
	}
}
