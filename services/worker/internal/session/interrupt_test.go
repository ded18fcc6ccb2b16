package session

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

var every = []event.Decision{event.DecisionApprove, event.DecisionEdit, event.DecisionReject}

// approval asks about calls of fs.write by their ids.
func approval(id string, calls ...string) event.InterruptRequested {
	i := event.InterruptRequested{InterruptID: id, InterruptType: event.InterruptToolApproval, AgentID: "agent"}
	for _, c := range calls {
		i.ToolApprovals = append(i.ToolApprovals, event.ToolApproval{
			ToolCallID: c, ToolName: "fs.write", ToolArgs: `{"path":"a<b"}`, AllowedDecisions: every,
		})
	}
	return i
}

func form(id string) event.InterruptRequested {
	return event.InterruptRequested{
		InterruptID: id, InterruptType: event.InterruptFormInput, AgentID: "agent", Prompt: "Where to?",
		Fields: []event.FormField{{FieldName: "city", FieldType: "text", Required: true}},
	}
}

// asks opens the calls, asks, and waits for a person.
func asks(i event.InterruptRequested) script {
	return func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
		for _, a := range i.ToolApprovals {
			if err := emitAll(ctx, emit, event.ToolStarted{ToolCallID: a.ToolCallID, ToolName: a.ToolName, Arguments: a.ToolArgs}); err != nil {
				return harness.Result{}, err
			}
		}
		if err := emitAll(ctx, emit, i); err != nil {
			return harness.Result{}, err
		}
		return harness.Result{}, f.Thread.Interrupt(ctx, harness.Codec{}, 0, nil)
	}
}

// writable is a bind whose agent has the tool fs.write.
func writable() Bind {
	b := right()
	b.Construction.Tools = []harness.Tool{{
		ID: "fs.write", OfferedName: "fs_write",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}`),
	}}
	return b
}

// waiting is a worker whose run-1 was interrupted.
func waiting(t *testing.T, i event.InterruptRequested) *worker {
	t.Helper()
	w := newWorker(t)
	w.bind(t, writable())
	w.adapter.play(asks(i))
	wantEnd(t, ends(t, w.start(t, "run-1")), interrupted(i))
	return w
}

func (w *worker) wantPending(t *testing.T, want Interrupt) {
	t.Helper()
	got, ok := w.Interrupt()
	if got != want || ok != (want != Interrupt{}) {
		t.Errorf("pending is %+v, %v; want %+v", got, ok, want)
	}
}

// An interrupt ends its run once it is committed, the calls that wait stay open,
// and it is pending from then on.
func TestInterrupt(t *testing.T) {
	for _, i := range []event.InterruptRequested{approval("int-1", "c1", "c2"), form("int-1")} {
		t.Run(string(i.InterruptType), func(t *testing.T) {
			w := waiting(t, i)
			w.wantPending(t, Interrupt{ID: "int-1", Type: i.InterruptType, Revision: 1})
			// The same run again has the same end, and asks nobody twice.
			again := read1(t, w.start(t, "run-1"))
			wantEnd(t, again.Data, interrupted(i))
			w.wantPending(t, Interrupt{ID: "int-1", Type: i.InterruptType, Revision: 1})
		})
	}
}

// What is pending belongs to the head: the next one that is committed replaces it,
// and a run that commits nothing leaves it.
func TestNextHeadReplacesThePending(t *testing.T) {
	pending := Interrupt{ID: "int-1", Type: event.InterruptFormInput, Revision: 1}
	for name, c := range map[string]struct {
		script script
		moves  bool
		commit func() error
		want   Interrupt
	}{
		"a run that finishes":                {script: says("x")},
		"a run that asks again":              {script: asks(form("int-2")), want: Interrupt{ID: "int-2", Type: event.InterruptFormInput, Revision: 2}},
		"a run that is cancelled by its end": {script: says("x"), moves: true},
		"an interrupt that a cancel overtook": {
			script: asks(form("int-2")), moves: true,
		},
		"a run that fails": {script: func(context.Context, harness.Turn, harness.Facades, harness.Emitter) (harness.Result, error) {
			return harness.Result{}, fault.New(fault.ModelFailed, "test")
		}, want: pending},
		"a commit that is refused": {
			script: says("x"), commit: func() error { return fault.New(fault.RevisionConflict, "test") }, want: pending,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := waiting(t, form("int-1"))
			w.connector.moves, w.connector.commit = c.moves, c.commit
			w.adapter.play(c.script)
			read(t, w.start(t, "run-2"))
			w.wantPending(t, c.want)
		})
	}
}

// An interrupt ends its run as such only where it was asked, closed and committed.
func TestInterruptsThatAreNone(t *testing.T) {
	ask := form("int-1")
	for name, c := range map[string]struct {
		script script
		commit func() error
		code   fault.Code
	}{
		"nothing was asked": {script: func(ctx context.Context, _ harness.Turn, f harness.Facades, _ harness.Emitter) (harness.Result, error) {
			return harness.Result{}, f.Thread.Interrupt(ctx, harness.Codec{}, 0, nil)
		}, code: fault.Protocol},
		"nothing was committed": {script: func(ctx context.Context, _ harness.Turn, _ harness.Facades, emit harness.Emitter) (harness.Result, error) {
			return harness.Result{}, emitAll(ctx, emit, ask)
		}, code: fault.Protocol},
		"it was committed as a success": {script: func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
			return harness.Result{}, errors.Join(emitAll(ctx, emit, ask), f.Thread.Commit(ctx, harness.Codec{}, 0, nil))
		}, code: fault.Protocol},
		"something else is open": {script: func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
			err := emitAll(ctx, emit, event.TextStarted{MessageID: "m"}, ask)
			return harness.Result{}, errors.Join(err, f.Thread.Interrupt(ctx, harness.Codec{}, 0, nil))
		}, code: fault.Protocol},
		"something follows": {script: func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
			err := emitAll(ctx, emit, ask, event.TextStarted{MessageID: "m"})
			return harness.Result{}, errors.Join(err, f.Thread.Interrupt(ctx, harness.Codec{}, 0, nil))
		}, code: fault.Protocol},
		"the commit fails": {
			script: asks(ask), commit: func() error { return fault.New(fault.ThreadDurabilityUncertain, "test") }, code: fault.ThreadDurabilityUncertain,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := bound(t)
			w.connector.commit = c.commit
			w.adapter.play(c.script)
			wantError(t, ends(t, w.start(t, "run-1")), c.code)
			w.wantPending(t, Interrupt{})
		})
	}
}

// A cancel that comes after the commit changes nothing; one that comes before it
// wins, and the calls that waited are closed.
func TestCancelAndInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		ask := approval("int-1", "c1")
		w.adapter.play(func(ctx context.Context, in harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
			if _, err := asks(ask)(ctx, in, f, emit); err != nil {
				return harness.Result{}, err
			}
			<-ctx.Done()
			return harness.Result{}, ctx.Err()
		})
		r := w.start(t, "run-1")
		synctest.Wait()
		w.Cancel(t.Context(), "run-1", event.CancelledByClient)
		wantEnd(t, ends(t, r), interrupted(ask))
		w.wantPending(t, Interrupt{ID: "int-1", Type: event.InterruptToolApproval, Revision: 1})

		w.connector.moves = true
		w.adapter.play(asks(approval("int-2", "c2")))
		events := read(t, w.start(t, "run-2"))
		if got := types(events); got != "run.started tool.started interrupt.requested tool.error run.cancelled " {
			t.Errorf("events: %s", got)
		}
		w.wantPending(t, Interrupt{})
	})
}

// What bind brings is pending from the beginning: a worker that was made anew
// knows what is committed.
func TestPendingComesWithBind(t *testing.T) {
	w := newWorker(t)
	w.wantPending(t, Interrupt{})
	b := right()
	b.Pending = &Interrupt{ID: "int-7", Type: event.InterruptFormInput, Revision: 7}
	w.bind(t, b)
	w.wantPending(t, *b.Pending)
	again := right() // the run has ended since, or whatever happened
	w.bind(t, again)
	w.wantPending(t, *b.Pending)
	read(t, w.start(t, "run-1"))
	w.wantPending(t, Interrupt{})
}
