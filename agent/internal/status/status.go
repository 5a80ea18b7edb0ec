// Package status is the only writer of conditions. A worker begins a report at the object's revision, says what it saw, and
// commits; the report decides Ready, keeps the times of what did not change, and writes only what differs.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// Writer stores a status; *registry.Registry is one.
type Writer interface {
	SetStatus(ctx context.Context, key desired.Key, revision int64, s api.Status) error
}

// Report is what one pass saw of an object.
type Report struct {
	// Status is what the pass changes besides conditions.
	Status api.Status

	writer   Writer
	key      desired.Key
	revision int64
	before   string
	needs    []desired.ConditionType
	override *desired.Condition
}

// Begin starts a report on an object. Ready will need every one of the conditions, in order of interest.
func Begin(w Writer, d *api.Document, needs ...desired.ConditionType) *Report {
	r := &Report{Status: d.Status, writer: w, key: d.Key, revision: d.Revision, needs: needs, before: encode(d.Status)}
	r.Status.Conditions = slices.Clone(d.Status.Conditions)
	return r
}

func encode(s api.Status) string {
	data, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// True records that a condition holds.
func (r *Report) True(t desired.ConditionType, message string) {
	r.set(t, desired.True, desired.ReasonOK, message)
}

// NotNeeded records that a condition does not apply to this object, which never keeps it from being ready.
func (r *Report) NotNeeded(t desired.ConditionType, message string) {
	r.set(t, desired.True, desired.ReasonNotNeeded, message)
}

// False records that a condition does not hold. The message says what was seen and what to do.
func (r *Report) False(t desired.ConditionType, reason desired.Reason, message string) {
	r.set(t, desired.False, reason, message)
}

// Unknown records that a condition cannot be told now.
func (r *Report) Unknown(t desired.ConditionType, reason desired.Reason, message string) {
	r.set(t, desired.Uncertain, reason, message)
}

// NotReady has Ready be false for this reason, whatever the other conditions say. The first call counts.
func (r *Report) NotReady(reason desired.Reason, message string) {
	if r.override == nil {
		r.override = &desired.Condition{Status: desired.False, Reason: reason, Message: message}
	}
}

func (r *Report) set(t desired.ConditionType, truth desired.Truth, reason desired.Reason, message string) {
	r.Status.Conditions.Set(desired.Condition{Type: t, Status: truth, Reason: reason, Message: message, Generation: r.revision}, time.Now())
}

// Get is a condition as the report has it now.
func (r *Report) Get(t desired.ConditionType) desired.Condition {
	return r.Status.Conditions.Get(t, r.revision)
}

// Commit decides Ready and writes the status where it differs from what is stored. An object that has moved on is no error:
// the change that moved it brings the next pass.
func (r *Report) Commit(ctx context.Context) error {
	r.ready()
	if encode(r.Status) == r.before {
		return nil
	}
	err := r.writer.SetStatus(ctx, r.key, r.revision, r.Status)
	if errors.Is(err, api.ErrConflict) {
		return nil
	}
	return err
}

func (r *Report) ready() {
	if r.override != nil {
		r.set(desired.Ready, r.override.Status, r.override.Reason, r.override.Message)
		return
	}
	var lines []string
	first := desired.Condition{}
	for _, t := range r.needs {
		c := r.Get(t)
		if c.Status == desired.True {
			continue
		}
		if len(lines) == 0 {
			first = c
		}
		lines = append(lines, fmt.Sprintf("%s: %s", t, c.Message))
	}
	if len(lines) == 0 {
		r.True(desired.Ready, "everything is in place")
		return
	}
	r.set(desired.Ready, desired.False, first.Reason, strings.Join(lines, "; "))
}
