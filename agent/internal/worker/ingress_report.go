package worker

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/posterndev/terraform-provider-postern/agent/internal/node"
	"github.com/posterndev/terraform-provider-postern/agent/internal/status"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// reportNode says whether the identity is on the tailnet as it was asked for, and mends at the control plane what can be.
func (w *ingress) reportNode(t *target, id *identity, report *status.Report) time.Duration {
	seen := id.node.Observe()
	if seen.Phase != node.Running {
		report.False(desired.Registered, nodeReason(seen.Phase), seen.Message)
		return 0
	}
	report.Status.MagicDNSName = strings.TrimSuffix(seen.DNSName, ".")
	report.Status.Addresses = nil
	for _, a := range seen.Addresses {
		report.Status.Addresses = append(report.Status.Addresses, a.String())
	}
	report.Status.EndpointAddresses = map[string]string{}
	for name, e := range t.plan.Endpoints {
		if len(report.Status.Addresses) > 0 {
			report.Status.EndpointAddresses[name] = net.JoinHostPort(report.Status.Addresses[0], strconv.FormatInt(e.Port, 10))
		}
	}
	return w.reportDevice(t, id, report)
}

func nodeReason(p node.Phase) desired.Reason {
	switch p {
	case node.ControlUnreachable:
		return desired.ReasonControlPlaneAway
	case node.KeyRefused:
		return desired.ReasonCredentialRefused
	case node.NeedsLogin:
		return desired.ReasonDeviceMissing
	default:
		return desired.ReasonStarting
	}
}

// reportDevice compares the node with its device at the control plane.
func (w *ingress) reportDevice(t *target, id *identity, report *status.Report) time.Duration {
	since, nodeKey := id.up()
	worker, err := w.tailnet(t.spec.Tailnet)
	if err != nil {
		report.Unknown(desired.Registered, desired.ReasonPending, err.Error())
		return settleTime
	}
	device, found, fresh := worker.device(nodeKey, since)
	switch {
	case found:
		report.Status.DeviceID = device.ID
	case !fresh:
		// The control plane was not asked since the node came up, perhaps because it is away: the node itself is there.
		report.True(desired.Registered, "up as "+report.Status.MagicDNSName+"; the control plane has not been asked since")
		return settleTime
	default:
		w.log.Warn("device is gone at the control plane, enrolling anew", "device", report.Status.DeviceID)
		report.Status.DeviceID = ""
		report.False(desired.Registered, desired.ReasonDeviceMissing,
			"the device was deleted at the control plane; the agent enrols the node anew, with a new address")
		id.node.Reenrol()
		return settleTime
	}
	if wait, ok := w.mendDevice(t, worker, device.ID, device.GivenName, device.Tags, report); !ok {
		return wait
	}
	report.True(desired.Registered, "up as "+report.Status.MagicDNSName)
	return 0
}

// mendDevice brings the device's name and tags to what is declared. It is not ok while they are not.
func (w *ingress) mendDevice(t *target, worker *tailnet, id, name string, tags []string, report *status.Report) (time.Duration, bool) {
	client, err := worker.current()
	if err != nil {
		return 0, true // nothing can be mended while nobody answers; what is there goes on
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if name != t.plan.Hostname {
		if holder, taken := worker.holderOf(t.plan.Hostname); taken {
			report.False(desired.Registered, desired.ReasonHostnameConflict, fmt.Sprintf(
				"device %s of the tailnet already has the name %s, so this one is called %s; delete or rename that device, or set another hostname",
				holder.ID, t.plan.Hostname, name))
			return 0, false
		}
		if err := client.RenameNode(ctx, id, t.plan.Hostname); err != nil {
			report.False(desired.Registered, desired.ReasonHostnameConflict, fmt.Sprintf(
				"the device is called %s, and renaming it to %s was refused: %v", name, t.plan.Hostname, err))
			return 0, false
		}
		worker.look()
		report.False(desired.Registered, desired.ReasonPending, "the device is being renamed to "+t.plan.Hostname)
		return settleTime, false
	}
	if sameSet(tags, t.plan.Tags) {
		return 0, true
	}
	if err := client.SetTags(ctx, id, t.plan.Tags); err != nil {
		report.False(desired.Registered, desired.ReasonPolicyRefused, fmt.Sprintf(
			"setting the tags %s was refused: %v; define them in the policy", strings.Join(t.plan.Tags, ", "), err))
		return 0, false
	}
	worker.look()
	report.False(desired.Registered, desired.ReasonPending, "the device is being given its tags")
	return settleTime, false
}

func sameSet(a, b []string) bool {
	seen := map[string]bool{}
	for _, s := range a {
		seen[s] = true
	}
	for _, s := range b {
		if !seen[s] {
			return false
		}
	}
	return len(seen) == len(b)
}

// reportPolicy says whether the ingress's tag and grant are in force.
func (w *ingress) reportPolicy(t *target, report *status.Report) time.Duration {
	worker, err := w.tailnet(t.spec.Tailnet)
	if err != nil {
		report.Unknown(desired.PolicyReady, desired.ReasonPending, err.Error())
		return settleTime
	}
	ok, known, refusal := worker.enforced(w.key, t.policy)
	switch {
	case !known:
		report.Unknown(desired.PolicyReady, desired.ReasonPending, "the tailnet's policy has not been read since the agent started; "+worker.trouble(t))
	case ok:
		report.True(desired.PolicyReady, "its entries are in the tailnet's policy")
	case refusal != "":
		report.False(desired.PolicyReady, desired.ReasonPolicyRefused, refusal)
	default:
		report.False(desired.PolicyReady, desired.ReasonPolicyNotWritten, "its entries are not in the tailnet's policy yet; "+worker.trouble(t))
	}
	return 0
}

// trouble says what keeps the tailnet from being ready, for an ingress's message.
func (t *tailnet) trouble(of *target) string {
	d, ok := of.view.Document(t.key)
	if !ok {
		return "the tailnet is gone"
	}
	if c := d.Ready(); c.Status == desired.False {
		return c.Message
	}
	return "the agent is at it"
}

// reportEdge says where the edge could not listen.
func (w *ingress) reportEdge(t *target, id *identity, failures error, report *status.Report) {
	if failures != nil {
		report.NotReady(desired.ReasonListenFailed, failures.Error())
	}
	if _, up := id.serving(); !up && t.spec.HasHTTP() {
		report.Status.ServedHosts = []string{}
	}
}

// reportBackends says which targets cannot be connected to (R2).
func (w *ingress) reportBackends(ctx context.Context, t *target, report *status.Report) {
	targets := map[string][]string{}
	probed := 0
	for name, e := range t.spec.Exposes {
		if e.EffectiveMode() != desired.ModeUDP {
			targets[name] = e.Backend.Targets
			probed += len(e.Backend.Targets)
		}
	}
	faults := w.backends.probe(ctx, targets)
	switch {
	case probed == 0:
		report.NotNeeded(desired.BackendsReachable, "udp backends cannot be probed")
	case len(faults) > 0:
		report.False(desired.BackendsReachable, desired.ReasonBackendUnreachable, strings.Join(faults, "; "))
	default:
		report.True(desired.BackendsReachable, fmt.Sprintf("%d of %d targets accept connections", probed, probed))
	}
}
