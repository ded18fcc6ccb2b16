package agents

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// fits says what of an agent its harness does not take: each error begins with the
// field.
func (r *Registry) fits(a Agent) error {
	e, ok := r.harnesses.For(a.Harness, a.Profile)
	switch {
	case !ok && a.Profile != "":
		return fmt.Errorf("profile: no profile of this name runs the harness %s; GET /api/v1/harnesses lists them", a.Harness)
	case !ok:
		return errors.New("harness: no profile runs it; GET /api/v1/harnesses lists them")
	}
	var errs []error
	if a.AdapterVersion != e.AdapterVersion {
		errs = append(errs, fmt.Errorf("adapter_version: workers have %s", e.AdapterVersion))
	}
	for _, v := range e.CheckOptions(a.HarnessOptions) {
		field := "harness_options" + strings.ReplaceAll(strings.TrimPrefix(v.Place, "arguments"), "/", ".")
		errs = append(errs, fmt.Errorf("%s: %s", field, v.Rule))
	}
	for _, need := range needs(a) {
		if ok, reason := e.Offers(need.capability); !ok {
			errs = append(errs, fmt.Errorf("%s: the harness %s lacks %s (%s)", need.field, a.Harness, need.capability, reason))
		}
	}
	return errors.Join(errs...)
}

// need is a capability that an agent can only be run with, and the field that asks
// for it.
type need struct{ field, capability string }

func needs(a Agent) []need {
	var out []need
	for _, n := range []struct {
		asked bool
		need
	}{
		{len(a.Tools) > 0, need{"tools", "tool.mcp"}},
		{len(a.ApproveTools) > 0 && !a.Interrupts.NoToolApproval, need{"approve_tools", "interrupt.tool_approval"}},
		{len(a.Middleware) > 0, need{"middleware", "middleware.portable"}},
		{len(a.Skills) > 0, need{"skills", "skills"}},
		// The user's scope is there by default, and is offered where it can be.
		{slices.Contains(a.MemoryScopes, "agent") || slices.Contains(a.MemoryScopes, "organization"), need{"memory_scopes", "memory.shared_policy"}},
	} {
		if n.asked {
			out = append(out, n.need)
		}
	}
	return out
}
