package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// measurePushes takes the time from a push to the first answer under the new name: on a node that is there, and on a new one
// beside a bare node that is started anew.
func measurePushes(ctx context.Context, c *chain, size sizes) (results, error) {
	var added, created, bare []float64
	var labels []string
	for run := range size.pushes {
		label := fmt.Sprintf("new%d", run)
		labels = append(labels, label)
		expose, exposeErr := c.timeExpose(ctx, labels)
		ingress, ingressErr := c.timeIngress(ctx, label+"-node")
		node, nodeErr := c.timeBare(ctx, label)
		if err := errors.Join(exposeErr, ingressErr, nodeErr); err != nil {
			return nil, err
		}
		added, created, bare = append(added, expose), append(created, ingress), append(bare, node)
	}
	return results{
		cost("push of an expose to its first answer", "s", added, nil),
		cost("push of an ingress to its first answer", "s", created, bare),
	}, nil
}

// timeExpose pushes the shop with one expose more, which is the last label.
func (c *chain) timeExpose(ctx context.Context, labels []string) (float64, error) {
	in := c.shop(labels)
	d, err := declaration(in, nil)
	if err != nil {
		return 0, err
	}
	old, err := c.agent.Client.Get(ctx, in.Key())
	if err != nil {
		return 0, err
	}
	to := c.ours()
	to.host = labels[len(labels)-1] + ".default.example.internal"
	begun := time.Now()
	if _, err := c.agent.Client.Update(ctx, in.Key(), d, old.Revision); err != nil {
		return 0, err
	}
	return c.firstAnswer(ctx, to, begun)
}

// timeIngress pushes an ingress with a node of its own, and takes it away again.
func (c *chain) timeIngress(ctx context.Context, name string) (float64, error) {
	in := c.idle(name)
	begun := time.Now()
	d, err := c.declare(ctx, in, nil)
	if err != nil {
		return 0, err
	}
	took, err := c.firstAnswer(ctx, side{address: d.Status.Addresses[0], host: name + ".default.example.internal", roots: c.caPEM}, begun)
	if deleteErr := c.agent.Client.Delete(ctx, in.Key()); deleteErr != nil {
		return 0, errors.Join(err, deleteErr)
	}
	_, goneErr := c.agent.Client.WaitGone(ctx, in.Key())
	return took, errors.Join(err, goneErr)
}

// timeBare brings up a bare node in a process that is there already, as the agent is.
func (c *chain) timeBare(ctx context.Context, name string) (float64, error) {
	b, err := startBare(ctx)
	if err != nil {
		return 0, err
	}
	defer b.stop()
	begun := time.Now()
	if err := b.up(c, name, 1, 0); err != nil {
		return 0, err
	}
	return c.firstAnswer(ctx, b.side(), begun)
}

// firstAnswer asks over HTTP/2 until there is an answer under a certificate for the host, and gives seconds since begun.
func (c *chain) firstAnswer(ctx context.Context, to side, begun time.Time) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := c.load.client(to, 2)
	defer client.CloseIdleConnections()
	err := testbed.Eventually(ctx, func() error {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return ask(attempt, client, to.url(), 2)
	})
	return time.Since(begun).Seconds(), err
}

// idle is an ingress like the shop, under a name of its own.
func (c *chain) idle(name string) *desired.Ingress {
	in := c.shop(nil)
	in.Name = name
	return in
}

// ask wants the web server's 1 KiB over a version of HTTP.
func ask(ctx context.Context, client *http.Client, url string, version int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	if err == nil && (n != bodySize || answer.StatusCode != http.StatusOK || answer.ProtoMajor != version) {
		err = fmt.Errorf("%s: %s over %s with %d bytes", url, answer.Status, answer.Proto, n)
	}
	return err
}
