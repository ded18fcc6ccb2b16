package delegate

import (
	"context"
	"fmt"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/toolbroker/internal/call"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

// maxText bounds what is kept of an agent's words, in bytes. What of it may be
// shown is bounded elsewhere.
const maxText = 1 << 20

// work follows a run to its end and tells of it on the way. The agent's words at
// the root of its run are the answer.
func work(ctx context.Context, within call.Within, agentID string, run Run) (mcpcall.Answer, error) {
	defer run.Close() //nolint:errcheck // it ends with ctx in any case
	tells := newRelay(within, agentID, run)
	defer tells.end(event.RunError{Code: string(fault.ToolOutcomeUnknown)}, event.NamespaceError) // unless it has ended
	var said strings.Builder
	for {
		e, err := run.Next()
		if err == nil {
			err = tells.take(e)
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return mcpcall.Answer{}, fmt.Errorf("%w: %w", mcpcall.ErrNoAnswer, err)
		}
		switch d := e.Data.(type) {
		case event.TextStarted:
			if len(e.Namespace) == 0 && said.Len() > 0 {
				said.WriteString("\n\n")
			}
		case event.TextDelta:
			if len(e.Namespace) == 0 {
				said.WriteString(event.Truncate(d.Delta, maxText-min(said.Len(), maxText)))
			}
		case event.RunFinished:
			tells.end(d, event.NamespaceSuccess)
			return answer(agentID, run.ID(), event.NamespaceSuccess, said.String())
		case event.RunCancelled:
			tells.end(d, event.NamespaceCancelled)
			return answer(agentID, run.ID(), event.NamespaceCancelled, unfinished(said.String(), "The agent was stopped before it was done."))
		case event.RunError:
			tells.end(d, event.NamespaceError)
			return answer(agentID, run.ID(), event.NamespaceError, unfinished(said.String(), "The agent failed: "+d.Message))
		case event.RunInterrupted:
			// Nobody can be asked: the control plane lets no such agent ask.
			tells.end(event.RunError{Code: string(fault.ApprovalRequired)}, event.NamespaceError)
			return answer(agentID, run.ID(), event.NamespaceError, unfinished(said.String(), "The agent asks what nobody is there to answer."))
		}
	}
}

// unfinished puts how an agent ended before what it had said until then.
func unfinished(said, why string) string {
	if said == "" {
		return why
	}
	return why + " Until then it had said:\n\n" + said
}
