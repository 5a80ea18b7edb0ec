package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/registry"
)

// keepAlive is how often a silent stream sends a comment, so that whoever is in between keeps it open.
const keepAlive = 15 * time.Second

// events streams what changes, by comparing what is there with what was sent: a change that is overtaken by another is
// left out, the last one never is.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	changes, err := s.config.Registry.Changes(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	before, err := s.config.Registry.View(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if err := control.Flush(); err != nil {
		return
	}
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			_, err = fmt.Fprint(w, ": still here\n\n")
		case _, open := <-changes:
			if !open {
				return
			}
			var now *registry.View
			if now, err = s.config.Registry.View(r.Context()); err != nil {
				return
			}
			err = send(w, before, now)
			before = now
		}
		if err != nil || control.Flush() != nil {
			return
		}
	}
}

// send writes an event for each object that differs between two views.
func send(w http.ResponseWriter, before, now *registry.View) error {
	gone := map[desired.Key]bool{}
	for _, d := range before.Documents("") {
		gone[d.Key] = true
	}
	for _, d := range now.Documents("") {
		delete(gone, d.Key)
		if old, ok := before.Document(d.Key); ok && reflect.DeepEqual(old, d) {
			continue
		}
		if err := sendEvent(w, api.Event{Key: d.Key, Document: d}); err != nil {
			return err
		}
	}
	for key := range gone {
		if err := sendEvent(w, api.Event{Key: key, Deleted: true}); err != nil {
			return err
		}
	}
	return nil
}

func sendEvent(w http.ResponseWriter, e api.Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	_, err = fmt.Fprintf(w, "data: %s\n\n", data)
	return err
}
