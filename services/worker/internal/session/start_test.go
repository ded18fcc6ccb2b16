package session

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/worker/internal/harness"
)

func TestRun(t *testing.T) {
	w := bound(t)
	events := read(t, w.start(t, "run-1"))
	if got := types(events); got != "run.started text.started text.delta text.finished run.finished " {
		t.Errorf("events: %s", got)
	}
	wantEnd(t, events[0].Data, event.RunStarted{HarnessID: "scripted", AdapterVersion: "1.2.3"})
	wantEnd(t, events[4].Data, event.RunFinished{StopReason: "stop"})
}

func TestStartRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fence.Envelope, *harness.Turn)
		code   fault.Code
	}{
		"another binding":      {func(e *fence.Envelope, _ *harness.Turn) { e.BindingID = "hs_another" }, fault.StaleLease},
		"lower epoch":          {func(e *fence.Envelope, _ *harness.Turn) { e.Epoch-- }, fault.StaleLease},
		"higher epoch":         {func(e *fence.Envelope, _ *harness.Turn) { e.Epoch++ }, fault.StaleLease},
		"lower generation":     {func(e *fence.Envelope, _ *harness.Turn) { e.Generation-- }, fault.StaleLease},
		"higher generation":    {func(e *fence.Envelope, _ *harness.Turn) { e.Generation++ }, fault.StaleLease},
		"no run":               {func(e *fence.Envelope, _ *harness.Turn) { e.RunID = "" }, fault.InvalidRequest},
		"another conversation": {func(_ *fence.Envelope, t *harness.Turn) { t.ConversationID = "conversation-2" }, fault.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			w := bound(t)
			e, in := envelope("run-1"), turn("run-1", "hi")
			c.change(&e, &in)
			_, err := w.Start(t.Context(), e, in, fresh)
			wantCode(t, err, c.code)
			if w.adapter.streams.Load() != 0 {
				t.Error("the harness ran")
			}
		})
	}
	t.Run("unbound", func(t *testing.T) {
		w := newWorker(t)
		_, err := w.Start(t.Context(), envelope("run-1"), turn("run-1", "hi"), fresh)
		wantCode(t, err, fault.StaleLease)
	})
	t.Run("no tokens for another run than that of the bind", func(t *testing.T) {
		w := bound(t)
		_, err := w.Start(t.Context(), envelope("run-2"), turn("run-2", "hi"), nil)
		wantCode(t, err, fault.CapabilityMissing)
		read(t, w.start(t, "run-2"))
	})
	t.Run("no facades", func(t *testing.T) {
		w := bound(t)
		w.connector.err = fault.New(fault.Internal, "test")
		_, err := w.Start(t.Context(), envelope("run-1"), turn("run-1", "hi"), nil)
		wantCode(t, err, fault.Internal)
		w.connector.err = nil
		r, err := w.Start(t.Context(), envelope("run-1"), turn("run-1", "hi"), nil)
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, ends(t, r), event.RunFinished{StopReason: "stop"})
	})
}

// One run at a time; the same run again is that run and never a second one.
func TestStartAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		w.adapter.play(waits)
		r := w.start(t, "run-1")
		synctest.Wait()
		_, err := w.Start(t.Context(), envelope("run-1"), turn("run-1", "hi"), fresh)
		wantCode(t, err, fault.AlreadyRunning)
		_, err = w.Start(t.Context(), envelope("run-1"), turn("run-1", "something else"), fresh)
		wantCode(t, err, fault.IdempotencyConflict)
		_, err = w.Start(t.Context(), envelope("run-2"), turn("run-2", "hi"), fresh)
		wantCode(t, err, fault.AlreadyRunning)
		w.Cancel(t.Context(), "run-1", event.CancelledByClient)
		first := read(t, r)

		// Another request of the same content: its own deadline, and its own id.
		time.Sleep(time.Second) //nolint:forbidigo // in a synctest bubble, so that the deadline is another one
		again := read1(t, w.start(t, "run-1"))
		if again.Sequence != first[len(first)-1].Sequence || again.Data != first[len(first)-1].Data {
			t.Errorf("the stored terminal is %+v, want %+v", again, first[len(first)-1])
		}
		_, err = w.Start(t.Context(), envelope("run-1"), turn("run-1", "something else"), fresh)
		wantCode(t, err, fault.IdempotencyConflict)
		if n := w.adapter.streams.Load(); n != 1 {
			t.Errorf("the harness ran %d times", n)
		}
		w.adapter.play(says("next"))
		wantEnd(t, ends(t, w.start(t, "run-2")), event.RunFinished{StopReason: "stop"})
	})
}

// read1 reads a run that consists of one event.
func read1(t *testing.T, r *Run) event.Event {
	t.Helper()
	events, err := r.Next(t.Context())
	if err != nil || len(events) != 1 {
		t.Fatalf("got %v, %v", events, err)
	}
	if more, err := r.Next(t.Context()); err == nil {
		t.Fatalf("more came: %v", more)
	}
	r.Disconnected() // harmless
	return events[0]
}

// A run that ended long ago is not started again either.
func TestOldRunsStayOver(t *testing.T) {
	w := bound(t)
	for n := range keptTerminals + 2 {
		read(t, w.start(t, fmt.Sprint("run-", n)))
	}
	streams := w.adapter.streams.Load()
	_, err := w.Start(t.Context(), envelope("run-0"), turn("run-0", "hi"), fresh)
	wantCode(t, err, fault.StaleLease)
	_, err = w.Start(t.Context(), envelope("run-0"), turn("run-0", "something else"), fresh)
	wantCode(t, err, fault.IdempotencyConflict)
	read1(t, w.start(t, "run-2"))
	if w.adapter.streams.Load() != streams {
		t.Error("the harness ran again")
	}
}

func TestRunsOfAWorkerAreBounded(t *testing.T) {
	w := bound(t)
	for n := range maxRuns {
		w.outcomes.remember(fmt.Sprint("old-", n), outcome{})
	}
	_, err := w.Start(t.Context(), envelope("run-1"), turn("run-1", "hi"), fresh)
	wantCode(t, err, fault.SandboxLimit)
	if len(w.outcomes.recent) > keptTerminals {
		t.Errorf("%d terminals are kept", len(w.outcomes.recent))
	}
}

// The tokens of a bind are those of its run, and leave the session with it.
func TestTokensOfTheBind(t *testing.T) {
	w := bound(t)
	r, err := w.Start(t.Context(), envelope("run-1"), turn("run-1", "hi"), nil)
	if err != nil {
		t.Fatal(err)
	}
	read(t, r)
	if got := w.connector.tokens; len(got) != 1 || got[0].Token != "bound" {
		t.Errorf("the run got the tokens %v", got)
	}
	if len(w.Session.bind.Tokens) != 0 {
		t.Error("the session still has them")
	}
}

// The worker's own context decides nothing: a run has a deadline and a reader.
func TestRunOutlivesTheRequestOnlyUntilDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		w.adapter.play(waits)
		ctx, gone := context.WithCancel(t.Context())
		r, err := w.Start(ctx, envelope("run-1"), turn("run-1", "hi"), fresh)
		if err != nil {
			t.Fatal(err)
		}
		gone()
		synctest.Wait()
		if w.adapter.running.Load() != 1 {
			t.Fatal("the run ended without a reason")
		}
		r.Disconnected()
		wantEnd(t, ends(t, r), cancelled(event.CancelledByDisconnect, event.SideEffectsNone))
	})
}
