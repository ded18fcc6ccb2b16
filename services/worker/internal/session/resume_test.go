package session

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// decide is a decision on an interrupt of revision 1 that approves every call, or
// answers the form.
func decide(i event.InterruptRequested, change ...func(*harness.Decision)) harness.Decision {
	d := harness.Decision{ConversationID: conversation, Interrupt: i, Revision: 1, Deadline: time.Now().Add(runTime)}
	for _, a := range i.ToolApprovals {
		d.Tools = append(d.Tools, harness.ToolDecision{ToolCallID: a.ToolCallID, Decision: event.DecisionApprove})
	}
	if i.InterruptType == event.InterruptFormInput {
		d.Form = json.RawMessage(`{"city":"Ulm"}`)
	}
	for _, c := range change {
		c(&d)
	}
	return d
}

func on(call int, what event.Decision, arguments string) func(*harness.Decision) {
	return func(d *harness.Decision) {
		d.Tools[call].Decision, d.Tools[call].Arguments = what, json.RawMessage(arguments)
	}
}

func dismiss(d *harness.Decision) { d.Form, d.Tools, d.Dismissed = nil, nil, true }

func (w *worker) resume(t *testing.T, runID string, d harness.Decision) (*Run, error) {
	t.Helper()
	d.RunID = runID
	return w.Resume(t.Context(), envelope(runID), d, fresh)
}

// carriesOut ends the calls that were decided on, and commits.
func carriesOut(ctx context.Context, d harness.Decision, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	for _, c := range carried(d) {
		var end event.Data = event.ToolFinished{ToolCallID: c.ToolCallID, Result: `"done"`}
		if c.Decision == event.DecisionReject {
			end = event.ToolError{ToolCallID: c.ToolCallID, Code: "tool_denied", Message: "rejected"}
		}
		if err := emitAll(ctx, emit, end); err != nil {
			return harness.Result{}, err
		}
	}
	return harness.Result{StopReason: "stop"}, f.Thread.Commit(ctx, harness.Codec{}, 1, nil)
}

// A resume is a run of its own in which the named calls count as started, and the
// decision reaches the harness in one form.
func TestResume(t *testing.T) {
	ask := approval("int-1", "c1", "c2", "c3")
	w := waiting(t, ask)
	w.adapter.playAnswer(carriesOut)
	d := decide(ask, on(0, event.DecisionReject, ""), on(1, event.DecisionEdit, `{ "path" : "b" }`))
	slices.Reverse(d.Tools) // in whatever order
	r, err := w.resume(t, "run-2", d)
	if err != nil {
		t.Fatal(err)
	}
	w.wantPending(t, Interrupt{}) // it was taken out
	events := read(t, r, event.Carried{ToolCallID: "c1", Decision: event.DecisionReject}, event.Carried{ToolCallID: "c2"}, event.Carried{ToolCallID: "c3"})
	if got := types(events); got != "run.started tool.error tool.finished tool.finished run.finished " {
		t.Errorf("events: %s", got)
	}
	got := w.adapter.decisions[0]
	want := []harness.ToolDecision{
		{ToolCallID: "c1", Decision: event.DecisionReject},
		{ToolCallID: "c2", Decision: event.DecisionEdit, Arguments: json.RawMessage(`{"path":"b"}`)},
		{ToolCallID: "c3", Decision: event.DecisionApprove},
	}
	if got.RunID != "run-2" || got.Revision != 1 || !slices.EqualFunc(got.Tools, want, func(a, b harness.ToolDecision) bool {
		return a.ToolCallID == b.ToolCallID && a.Decision == b.Decision && string(a.Arguments) == string(b.Arguments)
	}) {
		t.Errorf("the harness got %+v", got)
	}
	w.wantPending(t, Interrupt{})
}

// A form, a dismissal, and a call that delegates to what was interrupted.
func TestResumeOfOtherKinds(t *testing.T) {
	t.Run("form", func(t *testing.T) {
		w := waiting(t, form("int-1"))
		r, err := w.resume(t, "run-2", decide(form("int-1")))
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, ends(t, r), event.RunFinished{StopReason: "stop"})
		if got := w.adapter.decisions[0]; string(got.Form) != `{"city":"Ulm"}` || got.Dismissed || len(got.Tools) > 0 {
			t.Errorf("the harness got %+v", got)
		}
	})
	t.Run("dismissal", func(t *testing.T) {
		ask := approval("int-1", "c1")
		w := waiting(t, ask)
		w.adapter.playAnswer(func(ctx context.Context, _ harness.Decision, _ harness.Facades, emit harness.Emitter) (harness.Result, error) {
			// Rule 10: nobody makes a result up for a call that was rejected.
			return harness.Result{}, emitAll(ctx, emit, event.ToolFinished{ToolCallID: "c1", Result: `"x"`})
		})
		r, err := w.resume(t, "run-2", decide(ask, dismiss))
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, ends(t, r, event.Carried{ToolCallID: "c1", Decision: event.DecisionReject}), fault.Protocol)
		if got := w.adapter.decisions[0]; !got.Dismissed || len(got.Tools) > 0 || len(got.Form) > 0 {
			t.Errorf("the harness got %+v", got)
		}
	})
	t.Run("delegating", func(t *testing.T) {
		ask := approval("int-1", "c1")
		w := waiting(t, ask)
		w.adapter.playAnswer(carriesOut)
		r, err := w.resume(t, "run-2", decide(ask, func(d *harness.Decision) { d.Carried = []string{"parent"} }))
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, ends(t, r, event.Carried{ToolCallID: "parent"}, event.Carried{ToolCallID: "c1"}), event.RunFinished{StopReason: "stop"})
	})
}

// The same decision again is its run: already_running, and then its terminal.
// Another one is a conflict, at every point of that run's life.
func TestResumeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := approval("int-1", "c1")
		w := waiting(t, ask)
		w.adapter.playAnswer(func(ctx context.Context, _ harness.Decision, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
			return waits(ctx, harness.Turn{}, f, emit)
		})
		r, err := w.resume(t, "run-2", decide(ask))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the harness waits
		other := decide(ask, on(0, event.DecisionReject, ""))
		refused := func(runID string, d harness.Decision, code fault.Code) {
			t.Helper()
			_, err := w.resume(t, runID, d)
			wantCode(t, err, code)
		}
		refused("run-2", decide(ask), fault.AlreadyRunning)
		refused("run-2", other, fault.InterruptConflict)
		refused("run-3", other, fault.AlreadyRunning)
		w.Cancel(t.Context(), "run-2", event.CancelledByClient)
		want := ends(t, r, event.Carried{ToolCallID: "c1", Decision: event.DecisionApprove})
		time.Sleep(time.Second) //nolint:forbidigo // in a synctest bubble, so that the deadline is another one
		again, err := w.resume(t, "run-2", decide(ask, func(d *harness.Decision) { d.Uploads = []harness.Upload{{Handle: "another"}} }))
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, read1(t, again).Data, want)
		refused("run-2", other, fault.InterruptConflict)
		// The interrupt is consumed, whatever the run's id.
		refused("run-3", decide(ask), fault.InterruptConflict)
		refused("run-3", other, fault.InterruptConflict)
		refused("run-3", decide(approval("int-9", "c1")), fault.InterruptNotFound)
		if n := len(w.adapter.decisions); n != 1 {
			t.Errorf("the harness resumed %d times", n)
		}
		// A start under the id of a resume is another content too.
		_, err = w.Start(t.Context(), envelope("run-2"), turn("run-2", "hi"), fresh)
		wantCode(t, err, fault.IdempotencyConflict)
		wantEnd(t, ends(t, w.start(t, "run-4")), interrupted(ask)) // the worker goes on: it asks again
		w.wantPending(t, Interrupt{ID: "int-1", Type: event.InterruptToolApproval, Revision: 2})
		refused("run-5", decide(ask), fault.InterruptConflict) // of the revision before
	})
}

// What is not the pending interrupt is refused, and changes nothing.
func TestResumeOfAnotherInterrupt(t *testing.T) {
	ask := approval("int-1", "c1")
	edited := approval("int-1", "c1")
	edited.ToolApprovals[0].ToolArgs = `{"path":"/etc/passwd"}`
	for name, c := range map[string]struct {
		d    harness.Decision
		code fault.Code
	}{
		"another id":       {decide(approval("int-2", "c1")), fault.InterruptNotFound},
		"another revision": {decide(ask, func(d *harness.Decision) { d.Revision = 2 }), fault.InterruptConflict},
		"another type":     {decide(form("int-1")), fault.InterruptConflict},
		"another body":     {decide(edited), fault.InterruptConflict},
		"other calls":      {decide(approval("int-1", "c1", "c2")), fault.InterruptConflict},
	} {
		t.Run(name, func(t *testing.T) {
			w := waiting(t, ask)
			_, err := w.resume(t, "run-2", c.d)
			wantCode(t, err, c.code)
			w.wantPending(t, Interrupt{ID: "int-1", Type: event.InterruptToolApproval, Revision: 1})
			if len(w.adapter.decisions) > 0 {
				t.Error("the harness was resumed")
			}
			w.adapter.playAnswer(carriesOut)
			r, err := w.resume(t, "run-2", decide(ask)) // the right one still works
			if err != nil {
				t.Fatal(err)
			}
			read(t, r, event.Carried{ToolCallID: "c1", Decision: event.DecisionApprove})
		})
	}
}

// A worker that was bound for the answer has never seen the question: the control
// plane has, and the record had it taken out. Where bind named it, it has to be
// that one.
func TestResumeInANewWorker(t *testing.T) {
	ask := form("int-1")
	t.Run("bound for it", func(t *testing.T) {
		w := bound(t)
		r, err := w.resume(t, "run-1", decide(ask))
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, ends(t, r), event.RunFinished{StopReason: "stop"})
		_, err = w.resume(t, "run-2", decide(form("int-2")))
		wantCode(t, err, fault.InterruptNotFound) // from here on the worker knows
	})
	t.Run("bound with it", func(t *testing.T) {
		w := newWorker(t)
		b := right()
		b.Pending = &Interrupt{ID: "int-1", Type: event.InterruptFormInput, Revision: 1}
		w.bind(t, b)
		_, err := w.resume(t, "run-1", decide(form("int-2")))
		wantCode(t, err, fault.InterruptNotFound)
		_, err = w.resume(t, "run-1", decide(ask, func(d *harness.Decision) { d.Revision = 3 }))
		wantCode(t, err, fault.InterruptConflict)
		r, err := w.resume(t, "run-1", decide(ask))
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, ends(t, r), event.RunFinished{StopReason: "stop"})
	})
	t.Run("after a commit whose outcome nobody told", func(t *testing.T) {
		w := bound(t)
		read(t, w.start(t, "run-1"))
		_, err := w.resume(t, "run-3", decide(ask))
		wantCode(t, err, fault.InterruptNotFound)
		w.connector.commit = func() error { return fault.New(fault.ThreadDurabilityUncertain, "test") }
		w.adapter.play(asks(ask))
		wantError(t, ends(t, w.start(t, "run-2")), fault.ThreadDurabilityUncertain)
		w.wantPending(t, Interrupt{})
		w.connector.commit = nil
		r, err := w.resume(t, "run-3", decide(ask)) // it had happened after all
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, ends(t, r), event.RunFinished{StopReason: "stop"})
	})
}

// Decisions that do not fit are refused before anything happens, with the place.
func TestDecisionsThatDoNotFit(t *testing.T) {
	ask := approval("int-1", "c1", "c2")
	noEdit := approval("int-1", "c1", "c2")
	noEdit.ToolApprovals[0].AllowedDecisions = []event.Decision{event.DecisionApprove}
	builtin := approval("int-1", "c1", "c2")
	builtin.ToolApprovals[0].ToolName = "bash"
	choice := form("int-1")
	choice.Fields[0].FieldValues = []string{"Bonn", "Ulm"}
	fields := func(text string) func(*harness.Decision) {
		return func(d *harness.Decision) { d.Form = json.RawMessage(text) }
	}
	for name, c := range map[string]struct {
		d      harness.Decision
		code   fault.Code
		detail string
	}{
		"nothing":                     {decide(ask, func(d *harness.Decision) { d.Tools = nil }), fault.InvalidRequest, "decision"},
		"two things":                  {decide(ask, func(d *harness.Decision) { d.Dismissed = true }), fault.InvalidRequest, "decision"},
		"a form for calls":            {decide(ask, func(d *harness.Decision) { d.Tools, d.Form = nil, []byte(`{}`) }), fault.InvalidRequest, "decision"},
		"calls for a form":            {decide(form("int-1"), func(d *harness.Decision) { d.Form, d.Tools = nil, decide(ask).Tools }), fault.InvalidRequest, "decision"},
		"a call too few":              {decide(ask, func(d *harness.Decision) { d.Tools = d.Tools[:1] }), fault.InvalidRequest, "tool_decisions"},
		"a call twice":                {decide(ask, func(d *harness.Decision) { d.Tools[1] = d.Tools[0] }), fault.InvalidRequest, "tool_decisions"},
		"a call that was not named":   {decide(ask, func(d *harness.Decision) { d.Tools[1].ToolCallID = "c3" }), fault.InvalidRequest, "tool_decisions"},
		"a decision that is not open": {decide(noEdit, on(0, event.DecisionReject, "")), fault.InvalidRequest, "tool_decisions"},
		"arguments without an edit":   {decide(ask, on(0, event.DecisionApprove, `{"path":"b"}`)), fault.InvalidRequest, "tool_decisions"},
		"an edit without arguments":   {decide(ask, on(0, event.DecisionEdit, ``)), fault.InvalidRequest, "tool_decisions"},
		"arguments twice":             {decide(ask, on(0, event.DecisionEdit, `{"path":"b","path":"c"}`)), fault.InvalidRequest, "tool_decisions"},
		"arguments in two cases":      {decide(ask, on(0, event.DecisionEdit, `{"path":"b","Path":"c"}`)), fault.InvalidRequest, "tool_decisions"},
		"arguments of another type":   {decide(ask, on(0, event.DecisionEdit, `{"path":7}`)), fault.ToolArgumentsInvalid, "decision.tools[].arguments/path"},
		"arguments that are missing":  {decide(ask, on(1, event.DecisionEdit, `{}`)), fault.ToolArgumentsInvalid, "decision.tools[].arguments"},
		"unknown arguments":           {decide(ask, on(0, event.DecisionEdit, `{"path":"b","mode":1}`)), fault.ToolArgumentsInvalid, "decision.tools[].arguments"},
		"a tool without a schema":     {decide(builtin, on(0, event.DecisionEdit, `{}`)), fault.ToolArgumentsInvalid, "decision.tools[].arguments"},
		"a field that is missing":     {decide(form("int-1"), fields(`{}`)), fault.InvalidRequest, "form"},
		"a field that is unknown":     {decide(form("int-1"), fields(`{"city":"Ulm","zip":"1"}`)), fault.InvalidRequest, "form"},
		"a field that is an object":   {decide(form("int-1"), fields(`{"city":{}}`)), fault.InvalidRequest, "form"},
		"a value that is no choice":   {decide(choice, fields(`{"city":"Jena"}`)), fault.InvalidRequest, "form"},
		"a list with none":            {decide(choice, fields(`{"city":["Ulm","Jena"]}`)), fault.InvalidRequest, "form"},
		"an interrupt that is none":   {decide(event.InterruptRequested{InterruptID: "int-1"}), fault.InvalidRequest, "interrupt"},
		"a carried call that is named": {
			decide(ask, func(d *harness.Decision) { d.Carried = []string{"c1"} }), fault.InvalidRequest, "carried_calls",
		},
		"a carried call twice": {
			decide(ask, func(d *harness.Decision) { d.Carried = []string{"p", "p"} }), fault.InvalidRequest, "carried_calls",
		},
		"another conversation": {
			decide(ask, func(d *harness.Decision) { d.ConversationID = "conversation-2" }), fault.InvalidRequest, "conversation_id",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t)
			w.bind(t, writable())
			_, err := w.resume(t, "run-1", c.d)
			wantCode(t, err, c.code)
			if f := fault.From(err, ""); f == nil || !strings.HasPrefix(f.Detail(), c.detail) {
				t.Errorf("the detail is %v", err)
			}
			if len(w.adapter.decisions) > 0 {
				t.Error("the harness was resumed")
			}
		})
	}
}

// A resume has the life of a start.
func TestResumeIsARun(t *testing.T) {
	d := decide(form("int-1"))
	t.Run("unbound", func(t *testing.T) {
		_, err := newWorker(t).resume(t, "run-1", d)
		wantCode(t, err, fault.StaleLease)
	})
	t.Run("another generation", func(t *testing.T) {
		w := bound(t)
		e := envelope("run-1")
		e.Generation++
		_, err := w.Resume(t.Context(), e, d, fresh)
		wantCode(t, err, fault.StaleLease)
	})
	t.Run("no tokens for another run than that of the bind", func(t *testing.T) {
		w := waiting(t, form("int-1"))
		_, err := w.Resume(t.Context(), envelope("run-2"), d, nil)
		wantCode(t, err, fault.CapabilityMissing)
		w.wantPending(t, Interrupt{ID: "int-1", Type: event.InterruptFormInput, Revision: 1})
	})
	t.Run("cancelled before", func(t *testing.T) {
		w := waiting(t, form("int-1"))
		w.Cancel(t.Context(), "run-2", event.CancelledByClient)
		r, err := w.resume(t, "run-2", d)
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, ends(t, r), cancelled(event.CancelledByClient, event.SideEffectsNone))
		w.wantPending(t, Interrupt{}) // the record has it consumed all the same
	})
	t.Run("panic", func(t *testing.T) {
		w := bound(t)
		w.adapter.playAnswer(func(context.Context, harness.Decision, harness.Facades, harness.Emitter) (harness.Result, error) {
			panic(errors.New("of the adapter"))
		})
		r, err := w.resume(t, "run-1", d)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, ends(t, r), fault.Internal)
	})
	t.Run("it asks again", func(t *testing.T) {
		w := waiting(t, form("int-1"))
		w.adapter.playAnswer(func(ctx context.Context, _ harness.Decision, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
			return asks(form("int-2"))(ctx, harness.Turn{}, f, emit)
		})
		r, err := w.resume(t, "run-2", d)
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, ends(t, r), interrupted(form("int-2")))
		w.wantPending(t, Interrupt{ID: "int-2", Type: event.InterruptFormInput, Revision: 2})
	})
}

func TestAnswersAreBounded(t *testing.T) {
	var p pendingInterrupt
	for n := range uint64(3 * keptAnswers) {
		p.take(Interrupt{ID: "int", Revision: n})
	}
	if len(p.answered) != keptAnswers {
		t.Errorf("%d are kept", len(p.answered))
	}
}
