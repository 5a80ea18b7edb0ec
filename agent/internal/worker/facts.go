package worker

import (
	"context"
	"errors"
	"slices"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// refusing lists the problems with which nothing can work; the others are worth a warning. A server that cannot be reached
// now may be back when it is needed.
var refusing = []string{
	controlplane.ProblemWrongServer, controlplane.ProblemCredentials, controlplane.ProblemVersion,
	controlplane.ProblemPolicyFile, controlplane.ProblemPolicyUnparsed,
}

// factsOf gives what a probe saw in the words of the blueprint.
func factsOf(seen controlplane.Facts) blueprint.Facts {
	facts := blueprint.Facts{Version: seen.Version}
	if seen.PolicyMode == controlplane.PolicyDatabase {
		facts.Principals = &blueprint.Principals{Groups: seen.Names.Groups, Tags: seen.Names.Tags, Hosts: seen.Names.Hosts}
	}
	if seen.PolicyMode == controlplane.PolicyDatabase && seen.Names.AllowsAll {
		facts.Lacks = append(facts.Lacks, blueprint.Lack{
			ID: "policy_allows_all", Reason: desired.ReasonOK, Summary: "The tailnet's policy lets everyone reach everything",
			Detail: "The policy has no rules, or there is none, so allow_from limits nobody. The agent writes that down as an explicit rule " +
				"beside its own, so that nobody is cut off; remove the rule to have only what is listed allowed.",
		})
	}
	for _, p := range seen.Problems {
		facts.Lacks = append(facts.Lacks, blueprint.Lack{
			ID: p.ID, Summary: p.Summary, Detail: p.Detail, Reason: problemReason(p.ID), Refuse: slices.Contains(refusing, p.ID),
		})
	}
	return facts
}

func problemReason(id string) desired.Reason {
	switch id {
	case controlplane.ProblemUnreachable:
		return desired.ReasonControlPlaneAway
	case controlplane.ProblemCredentials:
		return desired.ReasonCredentialRefused
	}
	return desired.ReasonUnsupported
}

// Probe asks a tailnet's control plane what it can do, for a dry run. What keeps it from answering is a lack as well: a
// credential that is refused will not be accepted at apply, while a server that is away may be back by then.
func (d Deps) Probe(ctx context.Context, t *desired.Tailnet, apiKey string) blueprint.Facts {
	key := func() (string, error) {
		if t.Headscale.APIKeyFile != nil {
			return readKeyFile(*t.Headscale.APIKeyFile)
		}
		if apiKey == "" {
			return "", errors.New("no API key is stored yet, and none came with the plan")
		}
		return apiKey, nil
	}
	if _, err := key(); err != nil {
		return unreached(err, t.Headscale.APIKeyFile != nil)
	}
	client, err := d.Connect(t, key)
	if err != nil {
		return unreached(err, true)
	}
	seen, err := client.Probe(ctx)
	facts := factsOf(seen)
	if err != nil && len(facts.Lacks) == 0 {
		return unreached(err, errors.Is(err, controlplane.ErrUnauthorized) || errors.Is(err, controlplane.ErrUnsupported))
	}
	return facts
}

func unreached(err error, refuse bool) blueprint.Facts {
	return blueprint.Facts{Lacks: []blueprint.Lack{{
		ID: "control-plane", Summary: "The control plane cannot be used", Detail: explain(err), Reason: reasonOf(err), Refuse: refuse,
	}}}
}
