package headscale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
)

// call sends in as JSON, or no body if it is nil, and decodes the answer into out unless that is nil. path begins
// with "/" and is escaped. It returns the answer's headers, which may be nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	key, err := c.apiKey()
	if err != nil {
		return nil, err
	}
	ours, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	begin := time.Now()
	header, err := c.exchange(ours, method, path, key, in, out)
	c.log.DebugContext(ctx, "headscale request", "method", method, "path", path, "duration", time.Since(begin), "error", err)
	switch {
	case err == nil:
		return header, nil
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled):
		return header, fmt.Errorf("%s %s: %w", method, path, ctx.Err())
	}
	return header, err
}

func (c *Client) apiKey() (string, error) {
	key, err := c.key()
	if err != nil {
		return "", fmt.Errorf("%w: reading the API key: %w", controlplane.ErrUnauthorized, err)
	}
	key = strings.TrimSpace(key)
	odd := strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' })
	if key == "" || odd {
		return "", fmt.Errorf("%w: the API key is empty or has characters that no key has; make one with `headscale apikeys create`", controlplane.ErrUnauthorized)
	}
	return key, nil
}

func (c *Client) exchange(ctx context.Context, method, path, key string, in, out any) (http.Header, error) {
	resp, err := c.send(ctx, method, path, key, in)
	if err != nil {
		var wrapped *url.Error // repeats method and URL
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer in time: %w", ctx.Err())
		}
		return nil, fmt.Errorf("%s %s at %s: %w: %w", method, path, c.base, controlplane.ErrUnavailable, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return resp.Header, fmt.Errorf("%s %s at %s: %w: reading the answer: %w", method, path, c.base, controlplane.ErrUnavailable, err)
	case len(body) > maxAnswer:
		return resp.Header, fmt.Errorf("%s %s: answer longer than %d MiB", method, path, maxAnswer>>20)
	case resp.StatusCode != http.StatusOK:
		return resp.Header, c.refusal(method, path, key, resp, body)
	}
	if !isJSON(resp) {
		return resp.Header, c.notJSON(method, path, key, resp)
	}
	if out == nil {
		return resp.Header, nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return resp.Header, fmt.Errorf("%s %s: %w: decoding the answer: %w", method, path, controlplane.ErrWrongServer, err)
	}
	return resp.Header, nil
}

func (c *Client) send(ctx context.Context, method, path, key string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if method != http.MethodGet && method != http.MethodDelete {
		return c.once.Do(req)
	}
	again, err := retryablehttp.FromRequest(req)
	if err != nil {
		return nil, err
	}
	return c.retry.Do(again)
}

func isJSON(resp *http.Response) bool {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

func (c *Client) notJSON(method, path, key string, resp *http.Response) error {
	message := fmt.Sprintf("the answer is %q, not JSON; is %s the URL of Headscale?", resp.Header.Get("Content-Type"), c.base)
	if to := resp.Header.Get("Location"); to != "" {
		message = fmt.Sprintf("redirected to %q; set that as the URL if it is Headscale", to)
	}
	return &controlplane.StatusError{
		Method: method, Path: path, Status: resp.StatusCode, Message: scrub(message, key), Class: controlplane.ErrWrongServer,
	}
}

// refusal makes an error of an answer that is not 200. Headscale 0.29 sends a gRPC status as JSON; from its
// authentication, plain text.
func (c *Client) refusal(method, path, key string, resp *http.Response, body []byte) error {
	e := &controlplane.StatusError{Method: method, Path: path, Status: resp.StatusCode}
	var status struct {
		Code          int
		Message       string
		Title, Detail string // RFC 9457, in 0.30
	}
	json := isJSON(resp) && json.Unmarshal(body, &status) == nil
	if json {
		e.Message = strings.TrimSpace(status.Message + status.Title + " " + status.Detail)
	} else if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		e.Message = strings.TrimSpace(string(body))
	}
	e.Message = scrub(e.Message, key)
	e.Class = class(resp.StatusCode, status.Code, e.Message)
	if e.Class == nil && !json || errors.Is(e.Class, controlplane.ErrNotFound) && !json {
		return c.notJSON(method, path, key, resp)
	}
	return e
}

// scrub makes a server's text fit for an error: bounded, and without the key even if the server sends it back.
func scrub(text, key string) string {
	const most = 4096
	text = strings.ReplaceAll(text, key, "[redacted]")
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// gRPC status codes that classes need.
const (
	codeInvalidArgument  = 3
	codeDeadlineExceeded = 4
	codeNotFound         = 5
	codePermissionDenied = 7
	codeExhausted        = 8
	codeUnimplemented    = 12
	codeUnavailable      = 14
	codeUnauthenticated  = 16
)

func class(status, code int, message string) error {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, code == codeUnauthenticated, code == codePermissionDenied:
		return controlplane.ErrUnauthorized
	case isOverload(status), code == codeUnavailable, code == codeDeadlineExceeded, code == codeExhausted:
		return controlplane.ErrUnavailable
	case status == http.StatusNotFound, code == codeNotFound:
		return controlplane.ErrNotFound
	case status == http.StatusNotImplemented, code == codeUnimplemented:
		return controlplane.ErrUnsupported
	case status == http.StatusBadRequest, code == codeInvalidArgument:
		return controlplane.ErrRefused
	}
	return classify(message)
}

// classify tells apart what Headscale 0.29 answers with 500 and code 2 (unknown) alike, so that nothing but the text is left
// to go by. The texts are those of hscontrol/types/policy.go, grpcv1.go and state/state.go at v0.29.2. A text that is not
// known has no class.
func classify(message string) error {
	for _, t := range []struct {
		text  string
		class error
	}{
		{"acl policy not found", controlplane.ErrNoPolicy},
		{"update is disabled for modes other than 'database'", controlplane.ErrUnsupported},
		{"reading policy from path", errPolicyFile},
		{"node no longer exists in NodeStore", controlplane.ErrNotFound},
		{"is not a valid DNS label", controlplane.ErrRefused},
		{"tag must start with", controlplane.ErrRefused},
		{"node name is not unique", controlplane.ErrNameTaken},
	} {
		if strings.Contains(message, t.text) {
			return t.class
		}
	}
	return nil
}

// errPolicyFile is GET /policy where policy.mode is file and the file is missing or unreadable.
var errPolicyFile = fmt.Errorf("%w: policy.mode is file", controlplane.ErrUnsupported)
