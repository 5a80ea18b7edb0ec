package tfx

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// pathOf gives a path into a declaration. It is not exact for an element of a set, which has no path: then the set's is given.
func pathOf(p *tftypes.AttributePath) (at desired.Path, exact bool) {
	for _, step := range p.Steps() {
		switch step := step.(type) {
		case tftypes.AttributeName:
			at = at.Attribute(string(step))
		case tftypes.ElementKeyString:
			at = at.Key(string(step))
		case tftypes.ElementKeyInt:
			at = at.Index(int(step))
		default:
			return at, false
		}
	}
	return at, true
}

// attributePath gives Terraform's path for a path into a declaration: as far as the schema goes, and no further than a set,
// whose elements have no index.
func attributePath(ctx context.Context, s schema.Schema, at desired.Path) path.Path {
	p := path.Empty()
	for _, step := range at {
		if len(p.Steps()) > 0 {
			t, diags := s.TypeAtPath(ctx, p)
			if _, set := t.(types.SetType); set || diags.HasError() {
				return p
			}
		}
		var next path.Path
		switch {
		case step.Key != nil:
			next = p.AtMapKey(*step.Key)
		case step.Index != nil:
			next = p.AtListIndex(*step.Index)
		case len(p.Steps()) == 0:
			next = path.Root(step.Attribute)
		default:
			next = p.AtName(step.Attribute)
		}
		if _, diags := s.TypeAtPath(ctx, next); diags.HasError() {
			return p
		}
		p = next
	}
	return p
}
