package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// The errors that the API answers with. Each is the sentinel of a status code, and errors.Is finds it on both sides.
var (
	ErrInvalid      = errors.New("the request is not valid")
	ErrUnauthorized = errors.New("the credential is not accepted")
	ErrForbidden    = errors.New("the credential does not allow this")
	ErrNotFound     = errors.New("there is no such object")
	ErrExists       = errors.New("the object exists already")
	ErrConflict     = errors.New("the object has changed since it was read")
	ErrInUse        = errors.New("the object is in use")
	ErrDeleting     = errors.New("the object is being deleted")
	ErrMoved        = errors.New("the plan no longer holds")
	ErrTooLarge     = errors.New("the request is too large")
	ErrUnacceptable = errors.New("the declaration is refused")
	ErrVersion      = errors.New("the API versions differ")
	ErrBusy         = errors.New("too many requests")
	ErrUnavailable  = errors.New("the agent cannot answer now")
)

// mapping is the one table of sentinels, codes on the wire, and statuses.
var mapping = []struct {
	err    error
	code   string
	status int
}{
	{ErrInvalid, "invalid", http.StatusBadRequest},
	{ErrUnauthorized, "unauthorized", http.StatusUnauthorized},
	{ErrForbidden, "forbidden", http.StatusForbidden},
	{ErrNotFound, "not_found", http.StatusNotFound},
	{ErrExists, "exists", http.StatusPreconditionFailed},
	{ErrConflict, "conflict", http.StatusPreconditionFailed},
	{ErrInUse, "in_use", http.StatusConflict},
	{ErrDeleting, "deleting", http.StatusConflict},
	{ErrMoved, "moved", http.StatusConflict},
	{ErrTooLarge, "too_large", http.StatusRequestEntityTooLarge},
	{ErrUnacceptable, "refused", http.StatusUnprocessableEntity},
	{ErrVersion, "version", http.StatusNotAcceptable},
	{ErrBusy, "busy", http.StatusTooManyRequests},
	{ErrUnavailable, "unavailable", http.StatusServiceUnavailable},
}

// Error is an error on the wire: a sentinel, the agent's message, and the fields at fault.
type Error struct {
	// Kind is one of the sentinels.
	Kind    error
	Message string
	Fields  []*desired.FieldError
}

func (e *Error) Error() string {
	if len(e.Fields) == 0 {
		return e.Message
	}
	lines := make([]string, 0, len(e.Fields)+1)
	if e.Message != "" {
		lines = append(lines, e.Message)
	}
	for _, f := range e.Fields {
		lines = append(lines, f.Error())
	}
	return strings.Join(lines, "\n")
}

func (e *Error) Unwrap() error { return e.Kind }

// wireError is an Error's form in a body.
type wireError struct {
	Code    string                `json:"code"`
	Message string                `json:"message"`
	Fields  []*desired.FieldError `json:"fields,omitzero"`
}

// EncodeError gives the status and body for err. What is not one of the sentinels is a fault of the agent: status 500.
func EncodeError(err error) (status int, body []byte) {
	out := wireError{Code: "internal", Message: err.Error()}
	status = http.StatusInternalServerError
	for _, row := range mapping {
		if errors.Is(err, row.err) {
			out.Code, status = row.code, row.status
			break
		}
	}
	var e *Error
	if errors.As(err, &e) {
		out.Fields, out.Message = e.Fields, e.Message
	}
	body, marshalErr := json.Marshal(out)
	if marshalErr != nil {
		return http.StatusInternalServerError, []byte(`{"code":"internal","message":"the error cannot be encoded"}`)
	}
	return status, body
}

// DecodeError gives the error for an answer. A body that is no error of ours, such as a proxy's page, is kept in part.
func DecodeError(status int, body []byte) error {
	var in wireError
	if err := json.Unmarshal(body, &in); err == nil && in.Code != "" {
		for _, row := range mapping {
			if row.code == in.Code {
				return &Error{Kind: row.err, Message: in.Message, Fields: in.Fields}
			}
		}
		return &Error{Kind: kindOf(status), Message: in.Message, Fields: in.Fields}
	}
	const most = 200
	text := strings.TrimSpace(string(body))
	if len(text) > most {
		text = text[:most] + "…"
	}
	return &Error{Kind: kindOf(status), Message: "answer " + http.StatusText(status) + " that is not the agent's: " + text}
}

func kindOf(status int) error {
	for _, row := range mapping {
		if row.status == status {
			return row.err
		}
	}
	if status >= http.StatusInternalServerError {
		return ErrUnavailable
	}
	return ErrInvalid
}
