package event

import (
	"cmp"
	"slices"
	"time"
)

// OpenItem is something that is open.
type OpenItem struct {
	Kind ItemKind
	// ID is a message id or a tool call id; for a namespace that of the call that
	// delegates.
	ID string
	// Namespace that it stands in; for a namespace the path itself.
	Namespace []string
	// Name is the tool id or the agent id; empty for text, reasoning and a call
	// that was carried over.
	Name string
	// Waits marks a tool call that may stay open when the run is interrupted.
	Waits bool

	order int
}

// OpenItems are all that are open, the first opened first.
func (m *Machine) OpenItems() []OpenItem {
	open := make([]OpenItem, 0, len(m.items)+len(m.spaces)-1)
	for _, it := range m.items {
		open = append(open, OpenItem{
			Kind: it.key.kind, ID: it.key.id, Namespace: slices.Clone(it.path), Name: it.name, Waits: it.waits(), order: it.order,
		})
	}
	for key, sp := range m.spaces {
		if key != "" {
			open = append(open, OpenItem{
				Kind: ItemNamespace, ID: sp.parent, Namespace: slices.Clone(sp.path), Name: sp.agentID, order: sp.order,
			})
		}
	}
	slices.SortFunc(open, func(a, b OpenItem) int { return cmp.Compare(a.order, b.order) })
	return open
}

// Closers are the drafts that close what is open before the run ends as given:
// what was opened last is closed first. A tool call is closed as an error: no
// result is ever made up (rule 10). Before run.interrupted, calls that wait, or
// will once their namespace is closed, stay open. So does, before any end, a call
// that waits in a namespace which was exited already: no event may stand there
// any more, and run.error and run.cancelled may leave it (rule 5).
func (m *Machine) Closers(end Data) []Draft {
	open := m.OpenItems()
	slices.Reverse(open)
	outcome, toolError := closing(end)
	drafts := make([]Draft, 0, len(open)+1)
	for _, o := range open {
		if o.Kind != ItemNamespace && m.spaces[pathKey(o.Namespace)] == nil {
			continue
		}
		draft := Draft{Namespace: o.Namespace}
		switch o.Kind {
		case ItemText:
			draft.Data = TextFinished{MessageID: o.ID}
		case ItemReasoning:
			draft.Data = ReasoningFinished{MessageID: o.ID}
		case ItemNamespace:
			draft.Data = NamespaceExited{AgentID: o.Name, ParentToolCallID: o.ID, Outcome: outcome}
		case ItemTool:
			if outcome == NamespaceInterrupted && (o.Waits || m.delegates(o.ID)) {
				continue
			}
			failure := toolError
			failure.ToolCallID = o.ID
			draft.Data = failure
		}
		drafts = append(drafts, draft)
	}
	return drafts
}

// closing is how open namespaces and tool calls end with a run.
func closing(end Data) (NamespaceOutcome, ToolError) {
	const unknown = "The outcome of this tool call is not known."
	switch end := end.(type) {
	case RunFinished:
		return NamespaceSuccess, ToolError{Code: "tool_outcome_unknown", Message: unknown}
	case RunInterrupted:
		return NamespaceInterrupted, ToolError{Code: "tool_outcome_unknown", Message: unknown}
	case RunCancelled:
		return NamespaceCancelled, ToolError{Code: "cancelled", Message: "The run was cancelled before this tool call ended."}
	case RunError:
		return NamespaceError, ToolError{Code: end.Code, Message: "The run failed before this tool call ended."}
	default:
		return NamespaceError, ToolError{Code: "tool_outcome_unknown", Message: unknown}
	}
}

// Close ends the run by run.error or run.cancelled, on behalf of whoever owns
// it; also after a violation, also at the bounds of the run. It makes the closing
// events and the terminal, takes them into the run and returns them, to be
// committed as they are. A run of which nothing was seen is begun with started
// first (rule 1). It fails, and changes nothing, if the run has its terminal, the
// end is another one, or one of the two payloads is not valid.
func (m *Machine) Close(at time.Time, started RunStarted, end Data) ([]Event, error) {
	switch end.(type) {
	case RunError, RunCancelled:
	default:
		return nil, broken(1, "a run is closed by run.error or run.cancelled")
	}
	var drafts []Draft
	if m.next == 0 {
		drafts = append(drafts, Draft{Data: started})
	}
	drafts = append(append(drafts, m.Closers(end)...), Draft{Data: end})
	events := make([]Event, len(drafts))
	for i, d := range drafts {
		events[i] = d.Event(m.runID, m.conversationID, m.next+uint64(i), at)
		if _, err := inspect(events[i], &m.bounds); err != nil {
			return nil, err
		}
	}
	for _, e := range events {
		if err := m.accept(e); err != nil {
			return nil, err
		}
	}
	return events, nil
}
