package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"tailscale.com/tailcfg"
)

// probeLimit is how long a control plane may take to answer before a node starts without it.
const probeLimit = 3 * time.Second

// probe asks the control plane for its key, the first thing that a node asks for too.
func probe(ctx context.Context, controlURL string) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	address, err := url.JoinPath(controlURL, "key")
	if err != nil {
		return fmt.Errorf("control plane %s: %w", controlURL, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"?v="+strconv.Itoa(int(tailcfg.CurrentCapabilityVersion)), nil)
	if err != nil {
		return fmt.Errorf("control plane %s: %w", controlURL, err)
	}
	// No connection is kept: hundreds of nodes ask, each once a start.
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("asking the control plane: %w", err)
	}
	defer answer.Body.Close()
	const longestKey = 64 << 10
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, longestKey)); err != nil {
		return fmt.Errorf("asking the control plane: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the control plane for its key: %s answers %s", controlURL, answer.Status)
	}
	return nil
}
