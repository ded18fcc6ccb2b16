package runs_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
	"cofferdam.dev/services/controlplane/internal/worker"
)

func asksApproval() event.InterruptRequested {
	return event.InterruptRequested{
		InterruptID: "i1", InterruptType: event.InterruptToolApproval, AgentID: "demo",
		ToolApprovals: []event.ToolApproval{
			{ToolCallID: "c1", ToolName: "fs.write", ToolArgs: `{"path":"<a>"}`, AllowedDecisions: []event.Decision{event.DecisionApprove, event.DecisionEdit, event.DecisionReject}},
			{ToolCallID: "c2", ToolName: "fs.write", ToolArgs: `{}`, AllowedDecisions: []event.Decision{event.DecisionApprove, event.DecisionReject}},
		},
	}
}

// asking asks for two approvals in the first run and carries them out in the
// next: what is approved finishes, what is rejected is an error.
func asking(s **runstest.Stack) runstest.Script {
	return func(ctx context.Context, p *runstest.Play) error {
		if err := p.Emit(ctx, started()); err != nil {
			return err
		}
		if p.Resume == nil {
			asks := asksApproval()
			if err := p.Emit(ctx,
				event.ToolStarted{ToolCallID: "c1", ToolName: "fs.write", Arguments: `{"path":"<a>"}`},
				event.ToolStarted{ToolCallID: "c2", ToolName: "fs.write", Arguments: `{}`}, asks); err != nil {
				return err
			}
			if err := (*s).Interrupt(ctx, p, "snap-asks", asks); err != nil {
				return err
			}
			return p.Emit(ctx, event.RunInterrupted{InterruptID: "i1", Reason: event.InterruptedForToolApproval})
		}
		for _, a := range asksApproval().ToolApprovals {
			var end event.Data = event.ToolFinished{ToolCallID: a.ToolCallID, Result: `"done"`}
			if p.Resume.Decision.On(asksApproval(), a.ToolCallID) == event.DecisionReject {
				end = event.ToolError{ToolCallID: a.ToolCallID, Code: string(fault.ToolDenied), Message: fault.ToolDenied.Message()}
			}
			if err := p.Emit(ctx, end); err != nil {
				return err
			}
		}
		if err := (*s).Commit(ctx, p, "snap-done"); err != nil {
			return err
		}
		return p.Emit(ctx, event.RunFinished{StopReason: "stop"})
	}
}

func decide(on ...event.Decision) event.ResumeDecision {
	d := event.ResumeDecision{}
	for i, decision := range on {
		t := event.ToolDecision{ToolCallID: []string{"c1", "c2"}[i], Decision: decision}
		if decision == event.DecisionEdit {
			t.Arguments = `{"path":"b"}`
		}
		d.Tools = append(d.Tools, t)
	}
	return d
}

func resume(t *testing.T, s *runstest.Stack, runID string, d event.ResumeDecision) (runs.Started, error) {
	t.Helper()
	p, err := s.Runs.PendingInterrupt(t.Context(), runstest.Caller(), "demo", "c1")
	if err != nil {
		t.Fatal(err)
	}
	req := runs.ResumeRequest{RunID: runID, InterruptID: "i1", Revision: 1, Decision: d}
	if p != nil {
		req.Revision = p.Revision
	}
	return s.Runs.Resume(t.Context(), runstest.Caller(), req)
}

func TestAnInterruptIsAnswered(t *testing.T) {
	s := newStack(t, asking, runstest.Options{})
	first := start(t, s, "write")
	asked := follow(t, s, first.RunID)
	last[event.RunInterrupted](t, asked)
	p, err := s.Runs.PendingInterrupt(t.Context(), runstest.Caller(), "demo", "c1")
	if err != nil || p == nil || p.RunID != first.RunID || p.Revision != 1 || p.Interrupt.InterruptID != "i1" || len(p.Interrupt.ToolApprovals) != 2 {
		t.Fatalf("pending: %+v, %v", p, err)
	}
	// The answer to a question is not the next question: nothing starts before it.
	_, err = s.Runs.Start(t.Context(), runstest.Caller(), runs.StartRequest{AgentID: "demo", ConversationID: "c1", Message: "never mind"})
	if !fault.Is(err, fault.InterruptConflict) {
		t.Errorf("a start over a question: %v", err)
	}
	second, err := resume(t, s, first.RunID, decide(event.DecisionEdit, event.DecisionReject))
	if err != nil || !second.New || second.RunID == first.RunID {
		t.Fatalf("%+v, %v", second, err)
	}
	events := followResumed(t, s, second.RunID, decide(event.DecisionEdit, event.DecisionReject))
	last[event.RunFinished](t, events)
	if p, err := s.Runs.PendingInterrupt(t.Context(), runstest.Caller(), "demo", "c1"); err != nil || p != nil {
		t.Errorf("still pending: %+v, %v", p, err)
	}
	again, err := s.Runs.Resume(t.Context(), runstest.Caller(), runs.ResumeRequest{
		RunID: first.RunID, InterruptID: "i1", Revision: 1,
		Decision: event.ResumeDecision{Tools: []event.ToolDecision{
			{ToolCallID: "c2", Decision: event.DecisionReject}, {ToolCallID: "c1", Decision: event.DecisionEdit, Arguments: `{ "path" : "b" }`},
		}},
	})
	if err != nil || again.New || again.RunID != second.RunID {
		t.Errorf("the same decision again: %+v, %v", again, err)
	}
	if _, err := resume(t, s, first.RunID, decide(event.DecisionApprove, event.DecisionReject)); !fault.Is(err, fault.InterruptConflict) {
		t.Errorf("another decision: %v", err)
	}
	if d := document(t, s, second.RunID); len(d.Carried) != 2 || d.Carried[1].Decision != string(event.DecisionReject) ||
		d.Carried[0].ArgsDigest != binding.ToolCallDigest("fs.write", []byte(`{"path":"b"}`)) {
		t.Errorf("document carries %+v", d.Carried)
	}
}

// followResumed reads a resumed run to its terminal, with a machine that knows
// what it carries.
func followResumed(t *testing.T, s *runstest.Stack, runID string, d event.ResumeDecision) []event.Event {
	t.Helper()
	page, err := s.Runs.Events(t.Context(), runstest.Caller(), runID, 0, 100)
	for err == nil && !page.Ended {
		page, err = s.Runs.Events(t.Context(), runstest.Caller(), runID, 0, 100)
	}
	if err != nil {
		t.Fatal(err)
	}
	var carried []event.Carried
	for _, a := range asksApproval().ToolApprovals {
		carried = append(carried, event.Carried{ToolCallID: a.ToolCallID, Decision: d.On(asksApproval(), a.ToolCallID)})
	}
	m := event.NewMachine(runID, "c1", event.DefaultBounds(), carried...)
	var out []event.Event
	for _, raw := range page.Events {
		var e event.Event
		if err := e.UnmarshalJSON(raw); err != nil {
			t.Fatal(err)
		}
		if err := m.Accept(e); err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// Of many decisions at once one is carried out, and once.
func TestManyDecisionsAtOnce(t *testing.T) {
	s := newStack(t, asking, runstest.Options{})
	first := start(t, s, "write")
	follow(t, s, first.RunID)
	var mu sync.Mutex
	var ids []string
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			d := decide(event.DecisionApprove, []event.Decision{event.DecisionApprove, event.DecisionReject}[i%2])
			r, err := s.Runs.Resume(t.Context(), runstest.Caller(), runs.ResumeRequest{RunID: first.RunID, InterruptID: "i1", Revision: 1, Decision: d})
			if err != nil && !fault.Is(err, fault.InterruptConflict) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil && r.New {
				ids = append(ids, r.RunID)
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Errorf("carried out: %v", ids)
	}
	document(t, s, binding.ResumeRunID(first.BindingID, first.Epoch, "i1", 1))
}

func TestDecisionsThatCannotBe(t *testing.T) {
	s := newStack(t, asking, runstest.Options{})
	first := start(t, s, "write")
	follow(t, s, first.RunID)
	ok := runs.ResumeRequest{RunID: first.RunID, InterruptID: "i1", Revision: 1, Decision: decide(event.DecisionApprove, event.DecisionApprove)}
	for name, tt := range map[string]struct {
		change func(*runs.ResumeRequest)
		caller runs.Caller
		want   fault.Code
	}{
		"another revision":  {func(r *runs.ResumeRequest) { r.Revision = 2 }, runstest.Caller(), fault.InterruptConflict},
		"another interrupt": {func(r *runs.ResumeRequest) { r.InterruptID = "i2" }, runstest.Caller(), fault.InterruptNotFound},
		"an unknown run":    {func(r *runs.ResumeRequest) { r.RunID = "run_nobody" }, runstest.Caller(), fault.NotFound},
		"another caller":    {func(*runs.ResumeRequest) {}, runs.Caller{Subject: "user-2", Organization: "default"}, fault.NotFound},
		"too few decisions": {func(r *runs.ResumeRequest) { r.Decision = decide(event.DecisionApprove) }, runstest.Caller(), fault.InvalidRequest},
		"an edit that was not offered": {
			func(r *runs.ResumeRequest) { r.Decision = decide(event.DecisionApprove, event.DecisionEdit) },
			runstest.Caller(), fault.InvalidRequest,
		},
		"a form": {func(r *runs.ResumeRequest) { r.Decision = event.ResumeDecision{Form: `{}`} }, runstest.Caller(), fault.InvalidRequest},
	} {
		req := ok
		req.Decision.Tools = slices.Clone(ok.Decision.Tools)
		tt.change(&req)
		if _, err := s.Runs.Resume(t.Context(), tt.caller, req); !fault.Is(err, tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	if r := s.Record(t, first.BindingID); r.Interrupt == nil || r.Run != nil {
		t.Errorf("a refused decision changed the record: %+v", r)
	}
}

// A worker that has another question committed than people saw, or one without
// any, has broken the protocol; the conversation goes on.
func TestAQuestionThatNobodySaw(t *testing.T) {
	for name, asks := range map[string]func() []event.Data{
		"another one": func() []event.Data {
			i := asksApproval()
			i.ToolApprovals = i.ToolApprovals[:1]
			return []event.Data{started(), event.ToolStarted{ToolCallID: "c1", ToolName: "fs.write", Arguments: `{"path":"<a>"}`}, i}
		},
		"none": func() []event.Data { return []event.Data{started()} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, func(s **runstest.Stack) runstest.Script {
				return func(ctx context.Context, p *runstest.Play) error {
					if err := p.Emit(ctx, asks()...); err != nil {
						return err
					}
					return (*s).Interrupt(ctx, p, "snap", asksApproval())
				}
			}, runstest.Options{})
			if e := last[event.RunError](t, follow(t, s, start(t, s, "write").RunID)); e.Code != string(fault.Protocol) {
				t.Errorf("code = %s", e.Code)
			}
			s.Workers.Play(turn(&s, "next"))
			last[event.RunFinished](t, follow(t, s, start(t, s, "again").RunID))
		})
	}
}

// Another run's question of the same id is not answered with this one's.
func TestTheQuestionOfAnotherRun(t *testing.T) {
	s := newStack(t, asking, runstest.Options{})
	first := start(t, s, "write")
	follow(t, s, first.RunID)
	r, err := resume(t, s, first.RunID, event.ResumeDecision{Dismiss: true})
	if err != nil {
		t.Fatal(err)
	}
	document(t, s, r.RunID)
	second := start(t, s, "write again")
	follow(t, s, second.RunID)
	if _, err := resume(t, s, first.RunID, decide(event.DecisionApprove, event.DecisionApprove)); !fault.Is(err, fault.InterruptConflict) {
		t.Errorf("%v", err)
	}
	if r := s.Record(t, first.BindingID); r.Interrupt == nil || r.Interrupt.RunID != second.RunID {
		t.Errorf("the question is gone: %+v", r.Interrupt)
	}
}

// A run that asked nothing cannot be resumed.
func TestNothingWasAsked(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{})
	r := start(t, s, "hi")
	follow(t, s, r.RunID)
	if _, err := resume(t, s, r.RunID, event.ResumeDecision{Dismiss: true}); !fault.Is(err, fault.InterruptNotFound) {
		t.Errorf("%v", err)
	}
}

// schemas describes fs.write, unless the broker is away.
type schemas struct{ away bool }

func (s schemas) ListTools(context.Context, []string) ([]worker.Tool, []string, error) {
	if s.away {
		return nil, nil, fault.New(fault.DependencyUnavailable, "test")
	}
	return []worker.Tool{{ID: "fs.write", InputSchema: []byte(`{"type":"object","properties":{"path":{"type":"string"}},"additionalProperties":false}`)}}, nil, nil
}

// An edit that the tool would not take is refused while it can still be
// corrected: the question stays.
func TestAnEditThatDoesNotFit(t *testing.T) {
	edit := func(args event.Object) event.ResumeDecision {
		d := decide(event.DecisionEdit, event.DecisionReject)
		d.Tools[0].Arguments = args
		return d
	}
	for name, tt := range map[string]struct {
		tools schemas
		d     event.ResumeDecision
		want  fault.Code
	}{
		"another type":    {schemas{}, edit(`{"path":7}`), fault.ToolArgumentsInvalid},
		"another field":   {schemas{}, edit(`{"file":"a"}`), fault.ToolArgumentsInvalid},
		"what fits":       {schemas{}, edit(`{"path":"b"}`), ""},
		"nobody can tell": {schemas{away: true}, edit(`{"path":7}`), ""}, // the worker will
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, asking, runstest.Options{Change: func(c *runs.Config) { c.Tools = tt.tools }})
			first := start(t, s, "write")
			follow(t, s, first.RunID)
			r, err := resume(t, s, first.RunID, tt.d)
			if fault.CodeOf(err) != tt.want && (tt.want != "" || err != nil) {
				t.Fatalf("%v", err)
			}
			if tt.want == "" {
				document(t, s, r.RunID)
			} else if s.Record(t, first.BindingID).Interrupt == nil {
				t.Error("the question is gone")
			}
		})
	}
}
