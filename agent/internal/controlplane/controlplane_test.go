package controlplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestSecretDoesNotShow(t *testing.T) {
	const text = "hskey-auth-abc"
	key := AuthKey{ID: "1", Secret: text}
	var out bytes.Buffer
	for _, h := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(h).Info("minted", "key", key, "secret", key.Secret, "pointer", &key)
	}
	encoded, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "%s %v %+v %#v %v %q", encoded, key, key, key, &key, key.Secret)
	if strings.Contains(out.String(), text) || !strings.Contains(out.String(), redacted) {
		t.Errorf("it shows: %s", out.String())
	}
	if string(key.Secret) != text {
		t.Errorf("it can't be used: %s", string(key.Secret))
	}
}

func TestErrorsKeepTheirClass(t *testing.T) {
	status := fmt.Errorf("renaming: %w", &StatusError{Method: "POST", Path: "/x", Status: 500, Message: "taken", Class: ErrNameTaken})
	if !errors.Is(status, ErrNameTaken) || !errors.Is(status, ErrRefused) || errors.Is(status, ErrNotFound) {
		t.Errorf("classes of %v", status)
	}
	const want = "renaming: POST /x: 500 Internal Server Error: request refused: the name is taken by another node: taken"
	if status.Error() != want {
		t.Errorf("text %q, want %q", status, want)
	}
	if err := fmt.Errorf("writing: %w", &PolicyError{Message: "no"}); !errors.Is(err, ErrRefused) || errors.Is(err, ErrUnavailable) {
		t.Errorf("classes of %v", err)
	}
}
