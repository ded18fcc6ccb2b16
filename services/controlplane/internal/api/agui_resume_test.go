package api_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// asksTwice asks for two approvals, and says in the next run what was decided.
func asksTwice(s **runstest.Stack) runstest.Script {
	calls := []event.ToolApproval{
		{ToolCallID: "t1", ToolName: "fs.write", ToolArgs: `{"path":"a"}`, AllowedDecisions: []event.Decision{event.DecisionApprove, event.DecisionEdit, event.DecisionReject}},
		{ToolCallID: "t2", ToolName: "fs.write", ToolArgs: `{"path":"b"}`, AllowedDecisions: []event.Decision{event.DecisionApprove, event.DecisionReject}},
	}
	asks := event.InterruptRequested{InterruptID: "i1", InterruptType: event.InterruptToolApproval, AgentID: "demo", ToolApprovals: calls}
	return func(ctx context.Context, p *runstest.Play) error {
		if err := p.Emit(ctx, started()); err != nil {
			return err
		}
		if p.Resume == nil {
			for _, c := range calls {
				if err := p.Emit(ctx, event.ToolStarted{ToolCallID: c.ToolCallID, ToolName: c.ToolName, Arguments: c.ToolArgs}); err != nil {
					return err
				}
			}
			if err := p.Emit(ctx, asks); err != nil {
				return err
			}
			if err := (*s).Interrupt(ctx, p, "snap-asks", asks); err != nil {
				return err
			}
			return p.Emit(ctx, event.RunInterrupted{InterruptID: "i1", Reason: event.InterruptedForToolApproval})
		}
		for _, c := range calls {
			var end event.Data = event.ToolFinished{ToolCallID: c.ToolCallID, Result: `"done"`}
			if p.Resume.Decision.On(asks, c.ToolCallID) == event.DecisionReject {
				end = event.ToolError{ToolCallID: c.ToolCallID, Code: string(fault.ToolDenied), Message: fault.ToolDenied.Message()}
			}
			if err := p.Emit(ctx, end); err != nil {
				return err
			}
		}
		return finishes(ctx, s, p)
	}
}

// resuming is an input that answers, as HttpAgent sends it: no new message.
func resuming(runID, answers string) string {
	return `{"threadId":"c1","runId":"` + runID + `","messages":[{"id":"u1","role":"user","content":"hi"}],"resume":[` + answers + `]}`
}

// An AG-UI client answers the interrupts that its run ended with: each call by the
// id that it was asked by. The resumed run ends the calls and starts them not
// again; the same answers again stream the same run.
func TestAnAGUIClientAnswers(t *testing.T) {
	t.Parallel()
	approve := `{"interruptId":"i1/t1","status":"resolved","payload":{"decision":"approve"}}`
	edit := `{"interruptId":"i1/t1","status":"resolved","payload":{"decision":"edit","arguments":{"path":"c"}}}`
	reject := `{"interruptId":"i1/t2","status":"resolved","payload":{"decision":"reject"}}`
	leave := func(call string) string { return `{"interruptId":"i1/` + call + `","status":"cancelled"}` }
	done, denied := "done", "Error tool_denied"
	for name, row := range map[string]struct {
		answers string
		want    []string
	}{
		"approved and rejected":  {approve + "," + reject, []string{done, denied}},
		"edited and abandoned":   {edit + "," + leave("t2"), []string{done, denied}},
		"in another order":       {reject + "," + approve, []string{done, denied}},
		"abandoned both of them": {leave("t1") + "," + leave("t2"), []string{denied, denied}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{script: asksTwice})
			asked := frames(t, f.post(t, agui, goodAGUI).body)
			if last := asked[len(asked)-1].object(t); member(t, last, "outcome", "type") != "interrupt" {
				t.Fatalf("%v", last)
			}
			got := frames(t, f.post(t, agui, resuming("r2", row.answers)).body)
			want := []string{"RUN_STARTED", "TOOL_CALL_RESULT", "TOOL_CALL_RESULT", "RUN_FINISHED"}
			if !slices.Equal(kinds(got), want) {
				t.Fatalf("%v", got)
			}
			for i, text := range row.want {
				if o := got[i+1].object(t); !strings.HasPrefix(member(t, o, "content"), text) {
					t.Errorf("result %d is %v", i, o)
				}
			}
			if again := frames(t, f.post(t, agui, resuming("r2", row.answers)).body); !slices.Equal(again, got) {
				t.Errorf("the same answers again: %v", again)
			}
			refused(t, f.post(t, agui, resuming("r3", `{"interruptId":"i1/t1","status":"cancelled"},`+strings.Replace(reject, "reject", "approve", 1))), http.StatusConflict, fault.InterruptConflict, "")
		})
	}
}

func TestAnAGUIClientFillsInAForm(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: asksOnce})
	f.post(t, agui, goodAGUI)
	entry := func(payload string) string {
		return resuming("r2", `{"interruptId":"i1","status":"resolved","payload":`+payload+`}`)
	}
	refused(t, f.post(t, agui, entry(`"left"`)), http.StatusBadRequest, fault.InvalidRequest, "form: ")
	refused(t, f.post(t, agui, entry(`{"which":"up"}`)), http.StatusBadRequest, fault.InvalidRequest, "form: ")
	refused(t, f.post(t, agui, strings.Replace(entry(`{}`), `"i1"`, `"i2"`, 1)), http.StatusNotFound, fault.InterruptNotFound, "")
	got := frames(t, f.post(t, agui, entry(`{"which":"left"}`)).body)
	if !strings.Contains(got[2].data, `{\"which\":\"left\"}`) {
		t.Errorf("%v", got)
	}
}

// Answers that do not fit what was asked are refused, with the place.
func TestAnswersThatDoNotFit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: asksTwice})
	f.post(t, agui, goodAGUI)
	for name, row := range map[string]struct{ answers, detail string }{
		"one of two":      {`{"interruptId":"i1/t1","status":"cancelled"}`, "tool_decisions"},
		"no such call":    {`{"interruptId":"i1/t3","status":"cancelled"}`, "body: /resume/0/interruptId: "},
		"no payload":      {`{"interruptId":"i1/t1","status":"resolved"}`, "body: /resume/0/payload"},
		"a word":          {`{"interruptId":"i1/t1","status":"resolved","payload":{"decision":"maybe"}},{"interruptId":"i1/t2","status":"cancelled"}`, "tool_decisions"},
		"an edit of none": {`{"interruptId":"i1/t2","status":"resolved","payload":{"decision":"edit","arguments":{}}},{"interruptId":"i1/t1","status":"cancelled"}`, "tool_decisions"},
	} {
		a := f.post(t, agui, resuming("r2", row.answers))
		if e := a.fault(t); a.status != http.StatusBadRequest || !strings.HasPrefix(e.Message, row.detail) && !strings.Contains(string(a.body), row.detail) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}
