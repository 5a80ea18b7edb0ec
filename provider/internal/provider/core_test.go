package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// core plays Terraform's part for one workspace, in this process: it validates, plans and applies one resource at a time, and
// checks of each answer what Terraform checks. It lets tests run thousands of plans.
type core struct {
	tb        testing.TB
	endpoint  string
	workspace string
	types     map[string]tftypes.Object
	states    map[string]kept
}

// kept is a resource in the state.
type kept struct {
	value   tftypes.Value
	private []byte
	tainted bool
}

// process is the provider's process of one plan or one apply.
type process struct {
	*core
	server tfprotov6.ProviderServer
}

// plan is a planned resource.
type plan struct {
	kind, address string
	value         tftypes.Value
	private       []byte
	replaces      []*tftypes.AttributePath
	warnings      []string
}

func newCore(tb testing.TB, endpoint, workspace string) *core {
	c := &core{tb: tb, endpoint: endpoint, workspace: workspace, types: map[string]tftypes.Object{}, states: map[string]kept{}}
	schemas, err := c.open().server.GetProviderSchema(tb.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		tb.Fatal(err)
	}
	for name, s := range schemas.ResourceSchemas {
		t, ok := s.ValueType().(tftypes.Object)
		if !ok {
			tb.Fatalf("%s is no object", name)
		}
		c.types[name] = t
	}
	return c
}

// open starts a process: a configured provider.
func (c *core) open() *process {
	c.tb.Helper()
	server := providerserver.NewProtocol6(New("test", environment(c.endpoint, c.workspace)))()
	ctx := context.WithoutCancel(c.tb.Context())
	schemas, err := server.GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		c.tb.Fatal(err)
	}
	t := schemas.Provider.ValueType()
	config := c.dynamic(t, fromJSON(t, map[string]any{}))
	answer, err := server.ConfigureProvider(ctx, &tfprotov6.ConfigureProviderRequest{Config: config})
	if err != nil || len(answer.Diagnostics) > 0 {
		c.tb.Fatal(err, answer.Diagnostics)
	}
	return &process{core: c, server: server}
}

// configure gives a provider its configuration.
func configure(tb testing.TB, config map[string]any, env map[string]string) (warnings []string, err error) {
	tb.Helper()
	server := providerserver.NewProtocol6(New("test", func(name string) string { return env[name] }))()
	schemas, err := server.GetProviderSchema(tb.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		tb.Fatal(err)
	}
	t := schemas.Provider.ValueType()
	d, err := tfprotov6.NewDynamicValue(t, fromJSON(t, config))
	if err != nil {
		tb.Fatal(err)
	}
	answer, err := server.ConfigureProvider(tb.Context(), &tfprotov6.ConfigureProviderRequest{Config: &d})
	if err != nil {
		tb.Fatal(err)
	}
	return failures(answer.Diagnostics)
}

func (c *core) dynamic(t tftypes.Type, v tftypes.Value) *tfprotov6.DynamicValue {
	c.tb.Helper()
	d, err := tfprotov6.NewDynamicValue(t, v)
	if err != nil {
		c.tb.Fatal(err)
	}
	return &d
}

func (c *core) value(t tftypes.Type, d *tfprotov6.DynamicValue) tftypes.Value {
	c.tb.Helper()
	v, err := d.Unmarshal(t)
	if err != nil {
		c.tb.Fatal(err)
	}
	return v
}

// config makes a configuration from the object's JSON, and what is not part of its specification from more.
func (c *core) config(kind string, object any, more map[string]any) tftypes.Value {
	c.tb.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		c.tb.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(data, &fields); err != nil {
		c.tb.Fatal(err)
	}
	maps.Copy(fields, more)
	return fromJSON(c.types[kind], fields)
}

// failures joins the errors among diagnostics, and lists the warnings.
func failures(diags []*tfprotov6.Diagnostic) (warnings []string, err error) {
	for _, d := range diags {
		text := fmt.Sprintf("%s: %s: %s", d.Attribute, d.Summary, d.Detail)
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			err = errors.Join(err, errors.New(text))
		} else {
			warnings = append(warnings, text)
		}
	}
	return warnings, err
}

func (p *process) validate(kind string, config tftypes.Value) error {
	p.tb.Helper()
	answer, err := p.server.ValidateResourceConfig(p.tb.Context(), &tfprotov6.ValidateResourceConfigRequest{
		TypeName: kind, Config: p.dynamic(p.types[kind], config), ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
	})
	if err != nil {
		p.tb.Fatal(err)
	}
	_, err = failures(answer.Diagnostics)
	return err
}

// plan plans a resource as Terraform does: a tainted one as if it were not there, and one to be replaced a second time.
func (p *process) plan(kind, address string, config tftypes.Value) (*plan, error) {
	p.tb.Helper()
	if err := p.validate(kind, config); err != nil {
		return nil, err
	}
	t, null := p.types[kind], tftypes.NewValue(p.types[kind], nil)
	state, exists := p.states[address]
	if !exists || state.tainted {
		state = kept{value: null}
	}
	out, err := p.planOnce(kind, address, config, state)
	if err != nil || len(out.replaces) == 0 || state.value.IsNull() {
		return out, err
	}
	replaces := out.replaces
	out, err = p.planOnce(kind, address, config, kept{value: tftypes.NewValue(t, nil), private: out.private})
	if err == nil {
		out.replaces = replaces
	}
	return out, err
}

func (p *process) planOnce(kind, address string, config tftypes.Value, state kept) (*plan, error) {
	p.tb.Helper()
	return p.planWith(p.tb.Context(), kind, address, config, state)
}

func (p *process) planWith(ctx context.Context, kind, address string, config tftypes.Value, state kept) (*plan, error) {
	p.tb.Helper()
	t := p.types[kind]
	answer, err := p.server.PlanResourceChange(ctx, &tfprotov6.PlanResourceChangeRequest{
		TypeName: kind, PriorState: p.dynamic(t, state.value), PriorPrivate: state.private, Config: p.dynamic(t, config),
		ProposedNewState: p.dynamic(t, proposed(config, state.value)),
	})
	if err != nil {
		p.tb.Fatal(err)
	}
	out := &plan{kind: kind, address: address, private: answer.PlannedPrivate, replaces: answer.RequiresReplace}
	if out.warnings, err = failures(answer.Diagnostics); err != nil {
		return out, err
	}
	out.value = p.value(t, answer.PlannedState)
	return out, nil
}

// proposed is the configuration, and what is computed as it was. It knows the attributes of ours that are write-only.
func proposed(config, prior tftypes.Value) tftypes.Value {
	var now, old map[string]tftypes.Value
	if err := config.As(&now); err != nil {
		panic(err)
	}
	now = maps.Clone(now)
	if !prior.IsNull() {
		if err := prior.As(&old); err != nil {
			panic(err)
		}
	}
	for _, name := range computedNames {
		if v, ok := old[name]; ok {
			now[name] = v
		}
	}
	v := tftypes.NewValue(config.Type(), now)
	out, err := tftypes.Transform(v, func(p *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		if steps := p.Steps(); len(steps) > 0 && steps[len(steps)-1] == tftypes.AttributeName("api_key_wo") {
			return tftypes.NewValue(v.Type(), nil), nil
		}
		return v, nil
	})
	if err != nil {
		panic(err)
	}
	return out
}

// computedNames is every attribute of any kind that is computed.
var computedNames = []string{
	"id", "ready", "conditions", "base_domain", "server_version", "certificate_pem", "dns_name", "hosts", "tag", "magic_dns_name", "addresses",
	"served_hosts", "tls_not_after", "endpoints",
}

// apply plans anew, in this process, with what is known by now, holds the answer against the plan, and applies it.
func (p *process) apply(promised *plan, config tftypes.Value) error {
	p.tb.Helper()
	null := tftypes.NewValue(p.types[promised.kind], nil)
	if state, exists := p.states[promised.address]; exists && (len(promised.replaces) > 0 || state.tainted) {
		if err := p.change(promised.kind, promised.address, null, promised.private, null, state); err != nil {
			return err
		}
	}
	final, err := p.plan(promised.kind, promised.address, config)
	if err != nil {
		return err
	}
	if broken := unkept(promised.value, final.value); broken != "" {
		return &brokenPromise{"the plan at apply differs from the plan: " + broken}
	}
	state, exists := p.states[promised.address]
	if !exists {
		state = kept{value: null}
	}
	if exists && final.value.Equal(state.value) {
		return nil
	}
	return p.change(promised.kind, promised.address, final.value, final.private, config, state)
}

// brokenPromise is what Terraform calls a bug in the provider.
type brokenPromise struct{ text string }

func (b *brokenPromise) Error() string { return b.text }

// change applies and keeps the state, as Terraform does: with an error too.
func (p *process) change(kind, address string, planned tftypes.Value, private []byte, config tftypes.Value, state kept) error {
	p.tb.Helper()
	t := p.types[kind]
	answer, err := p.server.ApplyResourceChange(p.tb.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: kind, PriorState: p.dynamic(t, state.value), PlannedState: p.dynamic(t, planned), PlannedPrivate: private, Config: p.dynamic(t, config),
	})
	if err != nil {
		p.tb.Fatal(err)
	}
	_, err = failures(answer.Diagnostics)
	now := kept{value: p.value(t, answer.NewState), private: answer.Private}
	now.tainted = err != nil && state.value.IsNull()
	if now.value.IsNull() {
		delete(p.states, address)
	} else {
		p.states[address] = now
	}
	if planned.IsNull() || err != nil && now.value.Equal(state.value) {
		return err
	}
	if !now.value.IsFullyKnown() {
		return &brokenPromise{"the state is not known whole: " + dump(now.value)}
	}
	if broken := unkept(planned, now.value); broken != "" {
		return &brokenPromise{"the state differs from the plan: " + broken}
	}
	return err
}

// destroy plans and applies the end of a resource.
func (p *process) destroy(kind, address string) error {
	p.tb.Helper()
	t, null := p.types[kind], tftypes.NewValue(p.types[kind], nil)
	state := p.states[address]
	answer, err := p.server.PlanResourceChange(p.tb.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: kind, PriorState: p.dynamic(t, state.value), PriorPrivate: state.private, Config: p.dynamic(t, null), ProposedNewState: p.dynamic(t, null),
	})
	if err != nil {
		p.tb.Fatal(err)
	}
	if _, err := failures(answer.Diagnostics); err != nil {
		return err
	}
	return p.change(kind, address, null, answer.PlannedPrivate, null, state)
}

// refresh reads a resource.
func (p *process) refresh(kind, address string) ([]string, error) {
	p.tb.Helper()
	t, state := p.types[kind], p.states[address]
	answer, err := p.server.ReadResource(p.tb.Context(), &tfprotov6.ReadResourceRequest{TypeName: kind, CurrentState: p.dynamic(t, state.value), Private: state.private})
	if err != nil {
		p.tb.Fatal(err)
	}
	warnings, err := failures(answer.Diagnostics)
	if err != nil {
		return warnings, err
	}
	state.value, state.private = p.value(t, answer.NewState), answer.Private
	if state.value.IsNull() {
		delete(p.states, address)
	} else {
		p.states[address] = state
	}
	return warnings, nil
}
