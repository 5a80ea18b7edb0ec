// Package server is the admin API over HTTP. It decodes, authenticates, waits and streams; what a declaration means and
// whether it holds is package registry's to say.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/registry"
)

// Config is what a server works with.
type Config struct {
	// Registry keeps the objects. Required.
	Registry *registry.Registry
	// Tokens keeps the bearer tokens. Required for Remote.
	Tokens *Tokens
	// Info says which agent this is. Required.
	Info api.Info
	// Log gets a line for each request that fails on our side, and an audit line for each change (A5). Required.
	Log *slog.Logger
	// Ready says why the agent is not ready; nil where it is. Nil means always ready.
	Ready func() error
	// Metrics answers api.PathMetrics; nil means there are none.
	Metrics http.Handler
}

// Server answers the admin API.
type Server struct {
	config Config
	routes *http.ServeMux
}

// New makes a server.
func New(c Config) *Server {
	s := &Server{config: c, routes: http.NewServeMux()}
	s.routes.HandleFunc("GET "+api.PathVersion, s.version)
	s.routes.HandleFunc("GET "+api.PathSnapshot, s.snapshot)
	s.routes.HandleFunc("POST "+api.PathPlan, s.plan)
	s.routes.HandleFunc("GET "+api.PathEvents, s.events)
	s.routes.HandleFunc("GET "+api.PathHealth, s.health)
	s.routes.HandleFunc("GET "+api.PathReady, s.ready)
	s.routes.HandleFunc("POST "+api.PathTokens, s.createToken)
	s.routes.HandleFunc("GET "+api.PathTokens, s.listTokens)
	s.routes.HandleFunc("DELETE "+api.PathTokens+"/{id}", s.revokeToken)
	s.routes.HandleFunc("GET /v1/{kind}", s.list)
	s.routes.HandleFunc("GET /v1/{kind}/{namespace}/{name}", s.get)
	s.routes.HandleFunc("PUT /v1/{kind}/{namespace}/{name}", s.put)
	s.routes.HandleFunc("DELETE /v1/{kind}/{namespace}/{name}", s.delete)
	if c.Metrics != nil {
		s.routes.Handle("GET "+api.PathMetrics, c.Metrics)
	}
	s.routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, &api.Error{Kind: api.ErrNotFound, Message: fmt.Sprintf("%s %s: there is no such resource", r.Method, r.URL.Path)})
	})
	return s
}

// caller is who makes a request.
type caller struct {
	name  string
	local bool
}

type callerKey struct{}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// Local answers callers on the Unix socket, whom the file's permissions have let in.
func (s *Server) Local() http.Handler {
	return s.guard(func(*http.Request) (caller, error) { return caller{name: "socket", local: true}, nil })
}

// Remote answers callers with a bearer token. Only the health check goes without one.
func (s *Server) Remote() http.Handler {
	return s.guard(func(r *http.Request) (caller, error) {
		if r.URL.Path == api.PathHealth {
			return caller{name: "anonymous"}, nil
		}
		secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			return caller{}, &api.Error{Kind: api.ErrUnauthorized, Message: "a bearer token is needed; `postern token create` on the agent's host makes one"}
		}
		token, err := s.config.Tokens.Check(r.Context(), secret)
		if err != nil {
			return caller{}, err
		}
		return caller{name: "token " + token.ID}, nil
	})
}

// guard is what every request passes: who, which version, how large, and that a fault ends no more than its request.
func (s *Server) guard(identify func(*http.Request) (caller, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.recover(w, r)
		w.Header().Set(api.VersionHeader, api.Version)
		w.Header().Set("Cache-Control", "no-store")
		who, err := identify(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if theirs := r.Header.Get(api.VersionHeader); theirs != "" && theirs != api.Version {
			s.fail(w, r, &api.Error{Kind: api.ErrVersion, Message: fmt.Sprintf(
				"the client speaks API version %s and this agent (%s) %s; bring both to the same release", theirs, s.config.Info.Agent, api.Version)})
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, api.MaxBody)
		s.routes.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
	})
}

func (s *Server) recover(w http.ResponseWriter, r *http.Request) {
	fault := recover()
	if fault == nil {
		return
	}
	if err, ok := fault.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(fault)
	}
	s.config.Log.Error("request ended by a fault", "method", r.Method, "path", r.URL.Path, "fault", fault, "stack", string(debug.Stack()))
	s.fail(w, r, errors.New("a fault in the agent; its log has the details"))
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, body := api.EncodeError(err)
	if status >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.config.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client has gone, or it reads
}

// answer writes a value.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		s.fail(w, r, fmt.Errorf("encoding the answer: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client has gone, or it reads
}

// decode reads a body strictly.
func decode(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &api.Error{Kind: api.ErrTooLarge, Message: fmt.Sprintf("a request has at most %d bytes", large.Limit)}
	case err != nil:
		return &api.Error{Kind: api.ErrInvalid, Message: "the body is not the JSON that this request takes: " + err.Error()}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return &api.Error{Kind: api.ErrInvalid, Message: "the body has more than one JSON document"}
	}
	return nil
}

func (s *Server) version(w http.ResponseWriter, r *http.Request) { s.answer(w, r, s.config.Info) }

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "ok\n") // the client has gone, or it reads
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if s.config.Ready != nil {
		if err := s.config.Ready(); err != nil {
			s.fail(w, r, &api.Error{Kind: api.ErrUnavailable, Message: err.Error()})
			return
		}
	}
	_, _ = io.WriteString(w, "ok\n") // the client has gone, or it reads
}

// audit writes who changed what.
func (s *Server) audit(r *http.Request, verb string, subject string, err error) {
	outcome := "done"
	if err != nil {
		outcome = err.Error()
	}
	s.config.Log.LogAttrs(r.Context(), slog.LevelInfo, "audit", slog.String("who", callerOf(r.Context()).name),
		slog.String("workspace", r.Header.Get(api.WorkspaceHeader)), slog.String("verb", verb), slog.String("what", subject),
		slog.String("outcome", outcome), slog.Time("at", time.Now()))
}
