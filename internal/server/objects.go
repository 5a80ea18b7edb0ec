package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/registry"
)

func keyOf(r *http.Request) (desired.Key, error) {
	key, err := desired.ParseKey(desired.Kind(r.PathValue("kind")), r.PathValue("namespace"), r.PathValue("name"))
	if err != nil {
		return key, &api.Error{Kind: api.ErrInvalid, Message: err.Error()}
	}
	return key, nil
}

func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) {
	view, err := s.config.Registry.View(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, r, view.Snapshot(s.config.Info))
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	kind := desired.Kind(r.PathValue("kind"))
	if _, ok := desired.Lookup(kind); !ok {
		s.fail(w, r, &api.Error{Kind: api.ErrNotFound, Message: fmt.Sprintf("kind %q: there is no such kind", kind)})
		return
	}
	view, err := s.config.Registry.View(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	documents := view.Documents(kind)
	if documents == nil {
		documents = []*api.Document{}
	}
	s.answer(w, r, map[string]any{"documents": documents})
}

// get answers with an object, at once or when what is waited for has come or the time is over.
func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	key, err := keyOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	document, err := s.await(r.Context(), key, r.URL.Query().Get("wait"), r.URL.Query().Get("timeout"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("ETag", api.ETag(document.Revision))
	s.answer(w, r, document)
}

// await reads an object once waited holds of it, or once timeout is over. Waiting for "gone" ends in api.ErrNotFound.
func (s *Server) await(ctx context.Context, key desired.Key, waited, timeout string) (*api.Document, error) {
	limit, err := parseTimeout(timeout)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var changes <-chan struct{}
	if waited != "" {
		if changes, err = s.config.Registry.Changes(ctx); err != nil {
			return nil, err
		}
	}
	over := time.After(limit)
	for {
		document, err := s.read(ctx, key)
		if err != nil || waited == "" || holds(document, waited) {
			return document, err
		}
		select {
		case <-changes:
		case <-over:
			return document, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Server) read(ctx context.Context, key desired.Key) (*api.Document, error) {
	view, err := s.config.Registry.View(ctx)
	if err != nil {
		return nil, err
	}
	document, ok := view.Document(key)
	if !ok {
		return nil, &api.Error{Kind: api.ErrNotFound, Message: "there is no " + key.String()}
	}
	return document, nil
}

func holds(d *api.Document, waited string) bool {
	return waited != "gone" && d.Status.Conditions.Get(desired.ConditionType(waited), d.Revision).Status == desired.True
}

func parseTimeout(text string) (time.Duration, error) {
	if text == "" {
		return api.MaxWait, nil
	}
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 0 {
		return 0, &api.Error{Kind: api.ErrInvalid, Message: fmt.Sprintf("timeout %q: a number of seconds is needed", text)}
	}
	return min(time.Duration(seconds)*time.Second, api.MaxWait), nil
}

func (s *Server) put(w http.ResponseWriter, r *http.Request) {
	key, err := keyOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	guard, err := guardOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var declaration api.Declaration
	if err := decode(r, &declaration); err != nil {
		s.fail(w, r, err)
		return
	}
	document, err := s.config.Registry.Put(r.Context(), key, declaration, guard, r.Header.Get(api.WorkspaceHeader))
	s.audit(r, "put", key.String(), err)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("ETag", api.ETag(document.Revision))
	s.answer(w, r, document)
}

// guardOf reads If-Match and If-None-Match. A write without either is refused, so that nobody overwrites blindly.
func guardOf(r *http.Request) (registry.Guard, error) {
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case none == "*" && match == "":
		return registry.Guard{Absent: true}, nil
	case match == "*" && none == "":
		return registry.Guard{}, nil
	case match != "" && none == "":
		revision, err := api.ParseETag(match)
		return registry.Guard{Revision: revision}, err
	}
	return registry.Guard{}, &api.Error{Kind: api.ErrInvalid, Message: "a write has either If-None-Match: * or If-Match with the revision that was read"}
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request) {
	key, err := keyOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var guard registry.Guard
	if r.Header.Get("If-Match") != "" {
		if guard, err = guardOf(r); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	err = s.config.Registry.Delete(r.Context(), key, guard)
	s.audit(r, "delete", key.String(), err)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (s *Server) plan(w http.ResponseWriter, r *http.Request) {
	var request api.PlanRequest
	if err := decode(r, &request); err != nil {
		s.fail(w, r, err)
		return
	}
	response, err := s.config.Registry.Plan(r.Context(), request.Changes)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, r, response)
}
