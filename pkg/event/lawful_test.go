package event_test

import (
	"encoding/json"
	"reflect"
	"strings"

	"cofferdam.dev/pkg/event"
)

// What follows is a second reading of the contract's rules, slow and without
// state: it looks at the whole history for every event. The machine is fuzzed
// against it.

type phase int

const (
	begins phase = iota
	goesOn
	ends
)

// part says what an event does to which text, reasoning or call.
func part(d event.Data) (kind, id string, p phase, ok bool) {
	switch d := d.(type) {
	case event.TextStarted:
		return "text", d.MessageID, begins, true
	case event.TextDelta:
		return "text", d.MessageID, goesOn, true
	case event.TextFinished:
		return "text", d.MessageID, ends, true
	case event.ReasoningStarted:
		return "reasoning", d.MessageID, begins, true
	case event.ReasoningDelta:
		return "reasoning", d.MessageID, goesOn, true
	case event.ReasoningFinished:
		return "reasoning", d.MessageID, ends, true
	case event.ToolStarted:
		return "tool", d.ToolCallID, begins, true
	case event.ToolArgumentsDelta:
		return "tool", d.ToolCallID, goesOn, true
	case event.ToolFinished:
		return "tool", d.ToolCallID, ends, true
	case event.ToolError:
		return "tool", d.ToolCallID, ends, true
	default:
		return "", "", 0, false
	}
}

// history is what was accepted, after what was carried over.
type history struct {
	carried []event.Carried
	events  []event.Event
}

func (h history) decision(id string) (event.Decision, bool) {
	for _, c := range h.carried {
		if c.ToolCallID == id {
			return c.Decision, true
		}
	}
	return "", false
}

// life of a thing: whether it ever began, whether it is open, and where.
func (h history) life(kind, id string) (began, open bool, where string) {
	if _, carried := h.decision(id); carried && kind == "tool" {
		began, open, where = true, true, "*"
	}
	for _, e := range h.events {
		k, i, p, ok := part(e.Data)
		switch {
		case !ok || k != kind || i != id:
		case p == begins:
			began, open, where = true, true, strings.Join(e.Namespace, "/")
		case p == ends:
			open = false
		}
	}
	return began, open, where
}

// spaces are the open namespaces: path to what entered it.
func (h history) spaces() map[string]event.NamespaceEntered {
	open := make(map[string]event.NamespaceEntered)
	for _, e := range h.events {
		switch d := e.Data.(type) {
		case event.NamespaceEntered:
			open[strings.Join(e.Namespace, "/")] = d
		case event.NamespaceExited:
			delete(open, strings.Join(e.Namespace, "/"))
		}
	}
	return open
}

func (h history) interrupt() (asked event.InterruptRequested, ok bool) {
	for _, e := range h.events {
		if d, is := e.Data.(event.InterruptRequested); is {
			return d, true
		}
	}
	return asked, false
}

// joined are the streamed arguments of a call; whole says that it had some from
// the beginning.
func (h history) joined(id string) (text string, whole bool) {
	_, whole = h.decision(id)
	for _, e := range h.events {
		switch d := e.Data.(type) {
		case event.ToolStarted:
			whole = whole || d.ToolCallID == id && d.Arguments != event.EmptyObject
		case event.ToolArgumentsDelta:
			if d.ToolCallID == id {
				text += d.Delta
			}
		}
	}
	return text, whole
}

func (h history) argumentsFit(id string) bool {
	text, _ := h.joined(id)
	var object map[string]any
	return text == "" || json.Unmarshal([]byte(text), &object) == nil && object != nil
}

// shows: what people are asked about is the call as it was started.
func (h history) shows(a event.ToolApproval) bool {
	if _, carried := h.decision(a.ToolCallID); carried {
		return false
	}
	text, _ := h.joined(a.ToolCallID)
	for _, e := range h.events {
		if d, ok := e.Data.(event.ToolStarted); ok && d.ToolCallID == a.ToolCallID && text == "" {
			text = string(d.Arguments)
		}
	}
	var have, want any
	return json.Unmarshal([]byte(text), &have) == nil && json.Unmarshal([]byte(a.ToolArgs), &want) == nil && reflect.DeepEqual(have, want)
}

// waits: the interrupt names the call, or the namespace that it delegated to was
// interrupted.
func (h history) waits(id string) bool {
	asked, _ := h.interrupt()
	for _, a := range asked.ToolApprovals {
		if a.ToolCallID == id {
			return true
		}
	}
	if decision, carried := h.decision(id); carried && decision == "" {
		return true
	}
	for _, e := range h.events {
		if d, ok := e.Data.(event.NamespaceExited); ok && d.ParentToolCallID == id && d.Outcome == event.NamespaceInterrupted {
			return true
		}
	}
	return false
}

func (h history) delegates(id string) bool {
	for _, s := range h.spaces() {
		if s.ParentToolCallID == id {
			return true
		}
	}
	return false
}

// open lists what is open as kind, id and namespace.
func (h history) open() (list [][3]string) {
	seen := make(map[[2]string]bool)
	add := func(kind, id string) {
		if _, open, where := h.life(kind, id); open && !seen[[2]string{kind, id}] {
			list = append(list, [3]string{kind, id, where})
		}
		seen[[2]string{kind, id}] = true
	}
	for _, c := range h.carried {
		add("tool", c.ToolCallID)
	}
	for _, e := range h.events {
		if kind, id, _, ok := part(e.Data); ok {
			add(kind, id)
		}
	}
	return list
}

// allows reports whether the event may come next.
func (h history) allows(e event.Event) bool {
	n := len(h.events)
	_, isStart := e.Data.(event.RunStarted)
	if e.RunID != runID || e.ConversationID != conversationID || e.Sequence != uint64(n) || isStart != (n == 0) {
		return false
	}
	if n > 0 && h.events[n-1].Type().Terminal() {
		return false
	}
	if _, asked := h.interrupt(); asked && !e.Type().Closing() {
		switch e.Data.(type) {
		case event.RunInterrupted, event.RunError, event.RunCancelled:
		default:
			return false
		}
	}
	where := strings.Join(e.Namespace, "/")
	_, inSpace := h.spaces()[where]
	isRun := strings.HasPrefix(string(e.Type()), "run.")
	_, enters := e.Data.(event.NamespaceEntered)
	if where != "" && (isRun || inSpace == enters) {
		return false
	}
	return h.allowsData(e, where)
}

func (h history) allowsData(e event.Event, where string) bool {
	if kind, id, p, ok := part(e.Data); ok {
		began, open, home := h.life(kind, id)
		switch {
		case p == begins:
			return !began
		case !open || home != "*" && home != where:
			return false
		case kind == "tool" && p == ends && h.delegates(id):
			return false
		}
	}
	switch d := e.Data.(type) {
	case event.ToolArgumentsDelta:
		_, whole := h.joined(d.ToolCallID)
		return !whole
	case event.ToolFinished:
		asked, _ := h.interrupt()
		for _, a := range asked.ToolApprovals {
			if a.ToolCallID == d.ToolCallID {
				return false
			}
		}
		decision, _ := h.decision(d.ToolCallID)
		return decision != event.DecisionReject && h.argumentsFit(d.ToolCallID)
	case event.NamespaceEntered:
		above := strings.Join(e.Namespace[:max(len(e.Namespace)-1, 0)], "/")
		_, open, home := h.life("tool", d.ParentToolCallID)
		_, aboveOpen := h.spaces()[above]
		return where != "" && open && (home == "*" || home == above) && (above == "" || aboveOpen)
	case event.NamespaceExited:
		s := h.spaces()[where]
		if where == "" || s.AgentID != d.AgentID || s.ParentToolCallID != d.ParentToolCallID {
			return false
		}
		for path := range h.spaces() {
			if strings.HasPrefix(path, where+"/") {
				return false
			}
		}
		for _, it := range h.open() {
			if it[2] == where && (it[0] != "tool" || !h.waits(it[1])) {
				return false
			}
		}
		return true
	case event.InterruptRequested:
		for _, a := range d.ToolApprovals {
			if _, open, _ := h.life("tool", a.ToolCallID); !open || !h.argumentsFit(a.ToolCallID) || h.delegates(a.ToolCallID) || !h.shows(a) {
				return false
			}
		}
		return true
	case event.RunFinished:
		return len(h.open()) == 0 && len(h.spaces()) == 0
	case event.RunInterrupted:
		return h.allowsInterrupted(d)
	default:
		return true
	}
}

func (h history) allowsInterrupted(d event.RunInterrupted) bool {
	asked, ok := h.interrupt()
	if !ok || asked.InterruptID != d.InterruptID || (asked.InterruptType == event.InterruptFormInput) != (d.Reason == event.InterruptedForHumanInput) || len(h.spaces()) > 0 {
		return false
	}
	for _, it := range h.open() {
		if it[0] != "tool" || !h.waits(it[1]) {
			return false
		}
	}
	for _, a := range asked.ToolApprovals {
		if _, open, _ := h.life("tool", a.ToolCallID); !open {
			return false
		}
	}
	return true
}
