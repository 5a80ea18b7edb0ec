package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxEvent is the most that one event may have, in bytes.
const maxEvent = 4 << 20

// Events calls each with every event from now on, until ctx ends, each fails, or the agent ends the stream. The stream may
// join several changes of an object into one event; it never leaves out the last. A stream that ends is io.EOF: read what
// is there now and ask again.
func (c *Client) Events(ctx context.Context, each func(Event) error) error {
	answer, err := c.send(ctx, http.MethodGet, PathEvents, http.Header{"Accept": {"text/event-stream"}}, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(answer.Body, MaxBody))
		if err != nil {
			return fmt.Errorf("reading the agent's answer: %w", err)
		}
		return DecodeError(answer.StatusCode, body)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxEvent)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var event Event
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return fmt.Errorf("decoding an event: %w", err)
		}
		if err := each(event); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(io.EOF, lines.Err())
}
