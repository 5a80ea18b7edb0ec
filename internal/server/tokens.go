package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/store"
)

const (
	tokenFolder = "tokens/"
	// tokenPrefix makes a token known for what it is where one leaks.
	tokenPrefix = "postern_"
	// maxTokenTTL is the longest that a token is good for.
	maxTokenTTL = 366 * 24 * time.Hour
)

var (
	tokenName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`)
	tokenID   = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// Tokens keeps bearer tokens in a store: their hashes, never themselves (A5).
type Tokens struct{ store store.Store }

// NewTokens keeps tokens in s.
func NewTokens(s store.Store) *Tokens { return &Tokens{store: s} }

// storedToken is a token at rest. The secret has 256 random bits, so a plain hash of it cannot be reversed by guessing.
type storedToken struct {
	Name    string    `json:"name"`
	Hash    string    `json:"hash"`
	Expires time.Time `json:"expires"`
}

// Create makes a token. Its secret is in the answer and nowhere else.
func (t *Tokens) Create(ctx context.Context, name string, ttl time.Duration) (api.Token, error) {
	if !tokenName.MatchString(name) {
		return api.Token{}, &api.Error{Kind: api.ErrInvalid, Message: fmt.Sprintf("token name %q: a name has 1 to 63 letters, digits, dots, hyphens and underscores", name)}
	}
	if ttl <= 0 || ttl > maxTokenTTL {
		return api.Token{}, &api.Error{Kind: api.ErrInvalid, Message: fmt.Sprintf("token lifetime %s: a token is good for more than nothing and at most %s", ttl, maxTokenTTL)}
	}
	var random [8 + 32]byte
	if _, err := rand.Read(random[:]); err != nil {
		return api.Token{}, fmt.Errorf("making a token: %w", err)
	}
	id := hex.EncodeToString(random[:8])
	secret := tokenPrefix + id + "_" + hex.EncodeToString(random[8:])
	stored := storedToken{Name: name, Hash: hashToken(secret), Expires: time.Now().Add(ttl).UTC().Truncate(time.Second)}
	value, err := json.Marshal(stored)
	if err != nil {
		return api.Token{}, fmt.Errorf("encoding a token: %w", err)
	}
	if _, err := t.store.Commit(ctx, store.Put(tokenFolder+id, value, store.IfAbsent())); err != nil {
		return api.Token{}, fmt.Errorf("storing a token: %w", err)
	}
	return api.Token{ID: id, Name: name, Expires: stored.Expires, Secret: secret}, nil
}

func hashToken(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Check finds the token that secret is (api.ErrUnauthorized).
func (t *Tokens) Check(ctx context.Context, secret string) (api.Token, error) {
	refused := &api.Error{Kind: api.ErrUnauthorized, Message: "the token is not known to this agent; `postern token create` on its host makes one"}
	id, _, ok := strings.Cut(strings.TrimPrefix(secret, tokenPrefix), "_")
	if !ok || !tokenID.MatchString(id) {
		return api.Token{}, refused
	}
	entry, err := t.store.Get(ctx, tokenFolder+id)
	if errors.Is(err, store.ErrNotFound) {
		return api.Token{}, refused
	}
	if err != nil {
		return api.Token{}, fmt.Errorf("reading a token: %w", err)
	}
	var stored storedToken
	if err := json.Unmarshal(entry.Value, &stored); err != nil {
		return api.Token{}, fmt.Errorf("decoding token %s: %w", id, err)
	}
	if subtle.ConstantTimeCompare([]byte(stored.Hash), []byte(hashToken(secret))) != 1 {
		return api.Token{}, refused
	}
	if !time.Now().Before(stored.Expires) {
		return api.Token{}, &api.Error{Kind: api.ErrUnauthorized, Message: fmt.Sprintf(
			"token %s (%s) expired at %s; `postern token create` on the agent's host makes another", id, stored.Name, stored.Expires.Format(time.RFC3339))}
	}
	return api.Token{ID: id, Name: stored.Name, Expires: stored.Expires}, nil
}

// List lists the tokens, without secrets.
func (t *Tokens) List(ctx context.Context) ([]api.Token, error) {
	entries, _, err := t.store.List(ctx, tokenFolder)
	if err != nil {
		return nil, fmt.Errorf("listing tokens: %w", err)
	}
	tokens := []api.Token{}
	for _, entry := range entries {
		var stored storedToken
		if err := json.Unmarshal(entry.Value, &stored); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", entry.Key, err)
		}
		tokens = append(tokens, api.Token{ID: strings.TrimPrefix(entry.Key, tokenFolder), Name: stored.Name, Expires: stored.Expires})
	}
	return tokens, nil
}

// Revoke ends a token (api.ErrNotFound).
func (t *Tokens) Revoke(ctx context.Context, id string) error {
	absent := &api.Error{Kind: api.ErrNotFound, Message: fmt.Sprintf("there is no token %q; `postern token list` shows those that are", id)}
	if !tokenID.MatchString(id) {
		return absent
	}
	if _, err := t.store.Get(ctx, tokenFolder+id); errors.Is(err, store.ErrNotFound) {
		return absent
	}
	if _, err := t.store.Commit(ctx, store.Delete(tokenFolder+id)); err != nil {
		return fmt.Errorf("revoking token %s: %w", id, err)
	}
	return nil
}

// localOnly refuses callers from elsewhere: a token does not make tokens.
func localOnly(r *http.Request) error {
	if callerOf(r.Context()).local {
		return nil
	}
	return &api.Error{Kind: api.ErrForbidden, Message: "tokens are managed on the agent's host, over its Unix socket"}
}

func (s *Server) createToken(w http.ResponseWriter, r *http.Request) {
	if err := localOnly(r); err != nil {
		s.fail(w, r, err)
		return
	}
	var request api.TokenRequest
	if err := decode(r, &request); err != nil {
		s.fail(w, r, err)
		return
	}
	const longest = int64(maxTokenTTL/time.Second) + 1
	token, err := s.config.Tokens.Create(r.Context(), request.Name, time.Duration(min(request.TTL, longest))*time.Second)
	s.audit(r, "create", "token "+request.Name, err)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, r, token)
}

func (s *Server) listTokens(w http.ResponseWriter, r *http.Request) {
	if err := localOnly(r); err != nil {
		s.fail(w, r, err)
		return
	}
	tokens, err := s.config.Tokens.List(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, r, map[string]any{"tokens": tokens})
}

func (s *Server) revokeToken(w http.ResponseWriter, r *http.Request) {
	if err := localOnly(r); err != nil {
		s.fail(w, r, err)
		return
	}
	err := s.config.Tokens.Revoke(r.Context(), r.PathValue("id"))
	s.audit(r, "revoke", "token "+r.PathValue("id"), err)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
