package controlplane

import (
	"errors"
	"fmt"
	"net/http"
)

// The classes of error. Every error of a Client that has a class wraps one of them.
var (
	ErrUnauthorized = errors.New("credentials refused")
	ErrNotFound     = errors.New("not found")
	ErrUnavailable  = errors.New("control plane unavailable") // unreachable, not in time, no TLS, or overloaded: try again
	ErrUnsupported  = errors.New("not supported by the control plane")
	ErrRefused      = errors.New("request refused") // it will be refused again until something else changes
	ErrNameTaken    = fmt.Errorf("%w: the name is taken by another node", ErrRefused)
	ErrWrongServer  = errors.New("not the API of a control plane")
	ErrNoPolicy     = errors.New("no policy set")
	ErrPolicyMoved  = errors.New("policy changed in the meantime")
)

// StatusError is an answer that says no.
type StatusError struct {
	Method, Path string
	Status       int    // HTTP status
	Message      string // the server's own text
	Class        error  // one of the sentinels, or nil
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s %s: %d %s", e.Method, e.Path, e.Status, http.StatusText(e.Status))
	if e.Class != nil {
		text += ": " + e.Class.Error()
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Unwrap returns the class.
func (e *StatusError) Unwrap() error { return e.Class }

// PolicyError is what a control plane has to say against a policy document.
type PolicyError struct {
	Message string // the server's own text; may have several lines
}

func (e *PolicyError) Error() string { return "policy refused by the control plane: " + e.Message }

// Is makes a PolicyError a refusal.
func (e *PolicyError) Is(target error) bool { return target == ErrRefused }
