package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// maxAnswer is the most that is read of an answer, in bytes: a snapshot of thousands of objects fits.
const maxAnswer = 64 << 20

// Client talks to one agent. It is safe for concurrent use.
type Client struct {
	base    string
	options Options
	http    *retryablehttp.Client
}

// NewClient makes a client. It connects to nothing yet.
func NewClient(o Options) (*Client, error) {
	base, transport, err := o.transport()
	if err != nil {
		return nil, err
	}
	c := &Client{base: base, options: o, http: retryablehttp.NewClient()}
	c.http.HTTPClient = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	c.http.Logger = nil
	c.http.RetryMax = 3
	c.http.RetryWaitMin, c.http.RetryWaitMax = 100*time.Millisecond, 2*time.Second
	c.http.CheckRetry = retry
	c.http.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return c, nil
}

// retry repeats what is safe to repeat: anything when no connection could be made or the agent said to come back, and
// reads when the answer was lost. A write whose answer was lost is not repeated: its author reads what became of it.
func retry(ctx context.Context, answer *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return true, nil
		}
		var u *url.Error
		return errors.As(err, &u) && u.Op == "Get", nil
	}
	return answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable, nil
}

// Close frees idle connections.
func (c *Client) Close() { c.http.HTTPClient.CloseIdleConnections() }

// Endpoint is the endpoint as it was given.
func (c *Client) Endpoint() string { return c.options.Endpoint }

// Workspace is the workspace that the client declares for.
func (c *Client) Workspace() string { return c.options.Workspace }

// Info says which agent answers.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var out Info
	return out, c.do(ctx, http.MethodGet, PathVersion, nil, nil, &out)
}

// Snapshot reads everything that a plan session compiles from.
func (c *Client) Snapshot(ctx context.Context) (*Snapshot, error) {
	out := new(Snapshot)
	if err := c.do(ctx, http.MethodGet, PathSnapshot, nil, nil, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Get reads an object (ErrNotFound).
func (c *Client) Get(ctx context.Context, key desired.Key) (*Document, error) {
	out := new(Document)
	if err := c.do(ctx, http.MethodGet, ObjectPath(key), nil, nil, out); err != nil {
		return nil, err
	}
	return out, nil
}

// List reads the objects of a kind.
func (c *Client) List(ctx context.Context, kind desired.Kind) ([]Document, error) {
	var out struct {
		Documents []Document `json:"documents"`
	}
	if err := c.do(ctx, http.MethodGet, KindPath(kind), nil, nil, &out); err != nil {
		return nil, err
	}
	return out.Documents, nil
}

// Create declares an object that must not exist yet (ErrExists).
func (c *Client) Create(ctx context.Context, key desired.Key, d Declaration) (*Document, error) {
	return c.put(ctx, key, d, http.Header{"If-None-Match": {"*"}})
}

// Update declares an object anew that must still be at revision (ErrConflict, ErrNotFound).
func (c *Client) Update(ctx context.Context, key desired.Key, d Declaration, revision int64) (*Document, error) {
	return c.put(ctx, key, d, http.Header{"If-Match": {ETag(revision)}})
}

func (c *Client) put(ctx context.Context, key desired.Key, d Declaration, guard http.Header) (*Document, error) {
	out := new(Document)
	if err := c.do(ctx, http.MethodPut, ObjectPath(key), guard, d, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Delete asks for an object's end, which may take a while: it is over when Get answers ErrNotFound (WaitGone).
func (c *Client) Delete(ctx context.Context, key desired.Key) error {
	return c.do(ctx, http.MethodDelete, ObjectPath(key), nil, nil, nil)
}

// WaitFor waits until the condition is true for the spec of this revision or a newer one, and answers with the document
// as it was last seen, also when ctx ends first: then the error is ctx's.
func (c *Client) WaitFor(ctx context.Context, key desired.Key, condition desired.ConditionType, revision int64) (*Document, error) {
	return c.wait(ctx, key, string(condition), func(d *Document, err error) (bool, error) {
		return err == nil && d.Revision >= revision && d.Status.Conditions.Get(condition, revision).Status == desired.True, err
	})
}

// WaitGone waits until nothing of the object is left. Its document is the last one seen.
func (c *Client) WaitGone(ctx context.Context, key desired.Key) (*Document, error) {
	return c.wait(ctx, key, "gone", func(_ *Document, err error) (bool, error) {
		if errors.Is(err, ErrNotFound) {
			return true, nil
		}
		return false, err
	})
}

func (c *Client) wait(ctx context.Context, key desired.Key, what string, done func(*Document, error) (bool, error)) (*Document, error) {
	var last *Document
	for {
		query := url.Values{"wait": {what}, "timeout": {strconv.Itoa(int(waitRound(ctx).Seconds()))}}
		d := new(Document)
		err := c.do(ctx, http.MethodGet, ObjectPath(key)+"?"+query.Encode(), nil, nil, d)
		if err == nil {
			last = d
		}
		if ok, failed := done(d, err); ok || failed != nil && ctx.Err() == nil {
			return last, failed
		}
		if ctx.Err() != nil {
			return last, ctx.Err()
		}
	}
}

// waitRound is how long one request waits at the agent: less than what ctx has left, so that its answer still arrives.
func waitRound(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return MaxWait
	}
	return max(time.Second, min(MaxWait, time.Until(deadline)-time.Second))
}

// Plan tries changes without writing anything.
func (c *Client) Plan(ctx context.Context, changes ...Change) (*PlanResponse, error) {
	out := new(PlanResponse)
	if err := c.do(ctx, http.MethodPost, PathPlan, nil, PlanRequest{Changes: changes}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// CreateToken makes a bearer token. The answer holds its secret, once.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest) (Token, error) {
	var out Token
	return out, c.do(ctx, http.MethodPost, PathTokens, nil, r, &out)
}

// Tokens lists the bearer tokens.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	var out struct {
		Tokens []Token `json:"tokens"`
	}
	return out.Tokens, c.do(ctx, http.MethodGet, PathTokens, nil, nil, &out)
}

// RevokeToken ends a bearer token.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, PathTokens+"/"+url.PathEscape(id), nil, nil, nil)
}

// ETag writes a revision as an entity tag.
func ETag(revision int64) string { return strconv.Quote(strconv.FormatInt(revision, 10)) }

// ParseETag reads a revision from an entity tag.
func ParseETag(tag string) (int64, error) {
	text, err := strconv.Unquote(tag)
	if err != nil {
		return 0, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("If-Match %q: an entity tag is a revision in quotes", tag)}
	}
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("If-Match %q: an entity tag is a revision in quotes", tag)}
	}
	return revision, nil
}

func (c *Client) do(ctx context.Context, method, path string, header http.Header, in, out any) error {
	answer, err := c.send(ctx, method, path, header, in)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the agent's answer: %w", errors.Join(ErrUnavailable, err))
	case len(body) > maxAnswer:
		return &Error{Kind: ErrTooLarge, Message: fmt.Sprintf("the agent's answer has more than %d bytes", maxAnswer)}
	case answer.StatusCode >= http.StatusBadRequest:
		return DecodeError(answer.StatusCode, body)
	case answer.StatusCode >= http.StatusMultipleChoices:
		return &Error{Kind: ErrInvalid, Message: "the endpoint redirects, so it is not an agent's"}
	}
	if theirs := answer.Header.Get(VersionHeader); theirs != "" && theirs != Version {
		return versionError(theirs)
	}
	if out == nil || len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return &Error{Kind: ErrInvalid, Message: "the endpoint's answer is not an agent's: " + err.Error()}
	}
	return nil
}

func versionError(theirs string) error {
	return &Error{Kind: ErrVersion, Message: fmt.Sprintf("the agent speaks API version %s and this side %s; bring both to the same release", theirs, Version)}
}

func (c *Client) send(ctx context.Context, method, path string, header http.Header, in any) (*http.Response, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, fmt.Errorf("encoding the request: %w", err)
		}
	}
	request, err := retryablehttp.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	request.Header.Set(VersionHeader, Version)
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.options.Workspace != "" {
		request.Header.Set(WorkspaceHeader, c.options.Workspace)
	}
	if c.options.UserAgent != "" {
		request.Header.Set("User-Agent", c.options.UserAgent)
	}
	if c.options.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.options.Token)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &Error{Kind: ErrUnavailable, Message: fmt.Sprintf("the agent at %s does not answer: %v", c.options.Endpoint, err)}
	}
	return answer, nil
}
