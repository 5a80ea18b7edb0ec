package e2e

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// kills is how often the agent is killed.
const kills = 50

// No acknowledged push is lost, and the identity stays, however often the agent is killed while pushes go on (A2, P11).
func TestKilledDuringPushes(t *testing.T) {
	c := startChain(t)
	echo := backend(t, testbed.StartEcho)
	in := memberIngress("shop", map[string]desired.Expose{"db": tcpExpose(1000, echo.Address)})
	c.declare(t, in, nil)
	before, found, err := c.headscale.Device(deadline(t, time.Minute), "ingress-shop")
	if err != nil || !found {
		t.Fatalf("no device: %v", err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	port := int64(1000)
	acknowledged := port
	for kill := range kills {
		pushing := make(chan int64, 1)
		go func() { pushing <- c.pushUntilItFails(t, in, &port) }()
		pause := time.After(time.Duration(random.IntN(60)) * time.Millisecond)
		<-pause
		if err := c.agent.Kill(); err != nil {
			t.Fatal(err)
		}
		acknowledged = max(acknowledged, <-pushing)
		if err := c.agent.Start(deadline(t, time.Minute)); err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		d, err := c.agent.Client.Get(deadline(t, time.Minute), in.Key())
		if err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		if got := d.Ingress.Endpoints["db"].Port; got < acknowledged || got > port {
			t.Fatalf("kill %d: port %d is stored, %d was acknowledged and %d was sent", kill, got, acknowledged, port)
		}
		acknowledged = d.Ingress.Endpoints["db"].Port // what is stored now was pushed, and must stay
	}
	d, err := c.agent.Client.Get(deadline(t, time.Minute), in.Key())
	if err != nil {
		t.Fatal(err)
	}
	c.ready(t, in.Key(), d.Revision)
	after, found, err := c.headscale.Device(deadline(t, time.Minute), "ingress-shop")
	if err != nil || !found {
		t.Fatalf("no device: %v", err)
	}
	if before.ID != after.ID || before.NodeKey != after.NodeKey || before.Addresses[0] != after.Addresses[0] {
		t.Fatalf("the device was %+v and is %+v", before, after)
	}
	if devices, err := c.headscale.Devices(deadline(t, time.Minute)); err != nil || len(devices) != 1 {
		t.Fatalf("devices %+v: %v", devices, err)
	}
}

// pushUntilItFails pushes one port after the other and gives the last one that was acknowledged; port is the last one sent.
func (c *chain) pushUntilItFails(t *testing.T, in *desired.Ingress, port *int64) int64 {
	acknowledged := int64(0)
	for {
		e := in.Exposes["db"]
		e.Port = ptr(*port + 1)
		in.Exposes["db"] = e
		old, err := c.agent.Client.Get(t.Context(), in.Key())
		if err != nil {
			return acknowledged
		}
		*port++
		_, err = c.agent.Client.Update(t.Context(), in.Key(), declaration(t, in, nil), old.Revision)
		if errors.Is(err, api.ErrUnavailable) {
			return acknowledged
		}
		if err != nil {
			t.Errorf("push of port %d: %v", *port, err)
			return acknowledged
		}
		acknowledged = *port
	}
}
