package stdio

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// collector is an emitter that keeps what it gets.
type collector struct{ drafts []event.Draft }

func (c *collector) Emit(_ context.Context, d event.Draft) error {
	c.drafts = append(c.drafts, d)
	return nil
}

func (c *collector) text() string {
	out := ""
	for _, d := range c.drafts {
		if delta, ok := d.Data.(event.TextDelta); ok {
			out += delta.Delta
		}
	}
	return out
}

func (c *collector) types() string {
	out := make([]string, 0, len(c.drafts))
	for _, d := range c.drafts {
		out = append(out, string(d.Data.Type()))
	}
	return strings.Join(out, " ")
}

// initialized is the stand's adapter outside of a session.
func (s *stand) initialized(t *testing.T) harness.Runtime {
	t.Helper()
	rt, err := s.adapter.Initialize(t.Context(), s.construction)
	must(t, err)
	return rt
}

// resume resumes the program that newStand was made with.
func (s *stand) resume(t *testing.T, i event.InterruptRequested, d harness.Decision) (*collector, error) {
	t.Helper()
	c := &collector{}
	d.RunID, d.ConversationID, d.Interrupt, d.Revision, d.Deadline = "run-2", conversation, i, 1, time.Now().Add(time.Minute)
	s.point = nil
	_, err := s.initialized(t).Resume(t.Context(), d, s.facades(), c)
	return c, err
}

func approvals() event.InterruptRequested {
	call := func(id, args string) event.ToolApproval {
		return event.ToolApproval{ToolCallID: id, ToolName: "fs.write", ToolArgs: event.Object(args), AllowedDecisions: []event.Decision{"approve"}}
	}
	return event.InterruptRequested{
		InterruptID: "i", InterruptType: event.InterruptToolApproval, AgentID: "agent-1",
		ToolApprovals: []event.ToolApproval{call("c1", `{"n":1}`), call("c2", `{"n":2}`)},
	}
}

// A person is asked about a program's own call as it was shown: what says the same
// is the same.
func TestApprovalOfItsOwnCall(t *testing.T) {
	t.Parallel()
	s := newStand(t, "asks about its own call", change{})
	first := &collector{}
	_, err := s.initialized(t).Stream(t.Context(), harness.Turn{RunID: "run-1", ConversationID: conversation, Message: "go", Deadline: time.Now().Add(time.Minute)}, s.facades(), first)
	must(t, err)
	m := event.NewMachine("run-1", conversation, event.Bounds{})
	for _, d := range append([]event.Draft{{Data: event.RunStarted{HarnessID: ID, AdapterVersion: Version}}}, first.drafts...) {
		must(t, m.Accept(m.Stamp(d, time.Unix(1, 0).UTC())))
	}
	if _, asked := m.Interrupt(); !asked {
		t.Errorf("events %s", first.types())
	}
}

func TestInterruptAndResume(t *testing.T) {
	t.Parallel()
	const result = ` {"content":[{"type":"text","text":"contents"}]}`
	for name, c := range map[string]struct {
		decision harness.Decision
		calls    string
		said     string
		events   string
	}{
		"approve and edit": {
			harness.Decision{Tools: []harness.ToolDecision{
				{ToolCallID: "c1", Decision: event.DecisionApprove}, {ToolCallID: "c2", Decision: event.DecisionEdit, Arguments: json.RawMessage(`{"n":7}`)},
			}},
			"c1 fs.write {\"n\":1}\nc2 fs.write {\"n\":7}", "state" + result + result + " false", "tool.finished tool.finished",
		},
		"reject one": {
			harness.Decision{Tools: []harness.ToolDecision{
				{ToolCallID: "c1", Decision: event.DecisionReject}, {ToolCallID: "c2", Decision: event.DecisionApprove},
			}},
			`c2 fs.write {"n":2}`, "state" + result + " false", "tool.error tool.finished",
		},
		"dismiss": {harness.Decision{Dismissed: true}, "", "state true", "tool.error tool.error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, "asks approval", change{})
			rt, first := s.initialized(t), &collector{}
			_, err := rt.Stream(t.Context(), harness.Turn{RunID: "run-1", ConversationID: conversation, Message: "go", Deadline: time.Now().Add(time.Minute)}, s.facades(), first)
			must(t, err)
			if first.types() != "text.started text.delta text.finished tool.started tool.started interrupt.requested" || s.thread.interrupted != 1 {
				t.Fatalf("events %s, %d interrupts", first.types(), s.thread.interrupted)
			}
			asked, ok := first.drafts[len(first.drafts)-1].Data.(event.InterruptRequested)
			if !ok || len(asked.ToolApprovals) != 2 || len(asked.ToolApprovals[0].AllowedDecisions) != 3 || len(asked.ToolApprovals[1].AllowedDecisions) != 2 {
				t.Fatalf("asked %+v", asked)
			}
			second, err := s.resume(t, asked, c.decision)
			must(t, err)
			if s.tools.seen() != c.calls || second.text() != c.said {
				t.Errorf("said %q, the tool saw %q", second.text(), s.tools.seen())
			}
			if second.types() != c.events+" text.started text.delta text.finished" {
				t.Errorf("events: %s", second.types())
			}
			for _, d := range second.drafts {
				if e, ok := d.Data.(event.ToolError); ok && e.Code != string(fault.ToolDenied) {
					t.Errorf("a rejected call ended as %s", e.Code)
				}
			}
		})
	}
}

func TestForm(t *testing.T) {
	t.Parallel()
	s := newStand(t, "asks a form", change{})
	first := &collector{}
	_, err := s.initialized(t).Stream(t.Context(), harness.Turn{RunID: "run-1", ConversationID: conversation, Message: "go", Deadline: time.Now().Add(time.Minute)}, s.facades(), first)
	must(t, err)
	asked, ok := first.drafts[0].Data.(event.InterruptRequested)
	if !ok || asked.InterruptType != event.InterruptFormInput || s.thread.interrupted != 1 {
		t.Fatalf("asked %+v", first.drafts)
	}
	second, err := s.resume(t, asked, harness.Decision{Form: json.RawMessage(`{"region":"eu"}`)})
	must(t, err)
	if second.text() != `{"region":"eu"}` {
		t.Errorf("said %q", second.text())
	}
}
