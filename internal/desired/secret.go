package desired

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a write-only value. It prints, logs and marshals as a placeholder: only Reveal gives it away.
type Secret string

const redacted = "[secret]"

// Reveal is the secret itself.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string { return redacted }

// Format keeps every verb from showing the secret: fmt prints a value raw under a verb that does not fit, such as %d.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue keeps slog from showing the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText keeps every encoder from showing the secret. Where a secret must travel, its carrier calls Reveal.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
