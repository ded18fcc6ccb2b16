package runs

import (
	"context"
	"slices"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/toolschema"
)

const (
	// editTimeout bounds the question for schemas.
	editTimeout = 2 * time.Second
	// maxDecision bounds all edited arguments of one decision, in bytes: with the
	// interrupt they have to fit one request to a worker.
	maxDecision = 512 << 10
)

// checkEdits sees that edited arguments fit their tools before the interrupt is
// consumed: afterwards a typing error could not be corrected any more. A tool that
// the ToolBroker cannot describe now, or does not have, is left to the worker and
// the broker, which check as well.
func (s *Service) checkEdits(ctx context.Context, asked event.InterruptRequested, d event.ResumeDecision) error {
	const op = "runs.checkEdits"
	edits := map[string][]event.Object{}
	size := len(d.Form)
	for _, t := range d.Tools {
		size += len(t.Arguments)
		if t.Decision != event.DecisionEdit {
			continue
		}
		at := slices.IndexFunc(asked.ToolApprovals, func(a event.ToolApproval) bool { return a.ToolCallID == t.ToolCallID })
		if at >= 0 {
			name := asked.ToolApprovals[at].ToolName
			edits[name] = append(edits[name], t.Arguments)
		}
	}
	switch {
	case size > maxDecision:
		return fault.New(fault.RequestTooLarge, op, fault.Detail("tool_decisions: at most 512 KiB of arguments together"))
	case len(edits) == 0 || s.cfg.Tools == nil:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, editTimeout)
	defer cancel()
	ids := make([]string, 0, len(edits))
	for id := range edits {
		ids = append(ids, id)
	}
	tools, _, err := s.cfg.Tools.ListTools(ctx, ids)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "edited arguments cannot be checked before they are given to the worker", "error", err.Error())
		return nil
	}
	for _, t := range tools {
		schema, err := toolschema.Compile(t.InputSchema)
		if err != nil {
			continue // the broker would not have offered it
		}
		for _, arguments := range edits[t.ID] {
			if err := schema.CheckText([]byte(arguments)); err != nil {
				return fault.Wrap(err, fault.ToolArgumentsInvalid, op, fault.Detail("tool_decisions."+err.Error()))
			}
		}
	}
	return nil
}
