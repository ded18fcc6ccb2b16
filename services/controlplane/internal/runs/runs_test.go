package runs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

func say(text string) func(**runstest.Stack) runstest.Script {
	return func(s **runstest.Stack) runstest.Script { return turn(s, text) }
}

func TestATurnFinishesWithItsCommittedHead(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{})
	r := start(t, s, "hi")
	events := follow(t, s, r.RunID)
	f := last[event.RunFinished](t, events)
	if f.ThreadState == nil || f.ThreadState.Durability != event.DurabilityCommitted || *f.ThreadState.DurableRevision != 1 {
		t.Errorf("thread_state = %+v, want committed at revision 1", f.ThreadState)
	}
	if f.StopReason != "stop" {
		t.Errorf("stop_reason = %q", f.StopReason)
	}
	d := document(t, s, r.RunID)
	if d.End.Kind != binding.EndSuccess || d.Events != uint64(len(events)) || d.SideEffects != "none" {
		t.Errorf("document = %+v", d)
	}
	waittest.Until(t, "nothing of the run stands in the record", func() bool {
		rec := s.Record(t, r.BindingID)
		return rec.Run == nil && len(rec.Ending) == 0
	})
}

func TestTheNextTurnUsesTheSameWorker(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{})
	first := start(t, s, "one")
	follow(t, s, first.RunID)
	second := start(t, s, "two")
	f := last[event.RunFinished](t, follow(t, s, second.RunID))
	if *f.ThreadState.DurableRevision != 2 {
		t.Errorf("revision = %d, want 2", *f.ThreadState.DurableRevision)
	}
	if n := s.Provider.Made(); n != 1 {
		t.Errorf("%d sandboxes were made, want 1", n)
	}
	if first.BindingID != second.BindingID || s.Record(t, first.BindingID).Generation != 1 {
		t.Error("the second turn is not in the first binding and generation")
	}
}

// A truncated run was taken for success (ag-ui 2300).
func TestAStreamWithoutATerminalIsNeverSuccess(t *testing.T) {
	s := newStack(t, func(**runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			return errors.Join(p.Emit(ctx, started()), p.Text(ctx, "m1", "all is said"))
		}
	}, runstest.Options{})
	r := start(t, s, "hi")
	e := last[event.RunError](t, follow(t, s, r.RunID))
	if e.Code != string(fault.Protocol) || e.Message != fault.Protocol.Message() {
		t.Errorf("run.error = %+v, want protocol with its fixed sentence", e)
	}
}

func TestFinishedWithoutACommitIsABrokenProtocol(t *testing.T) {
	s := newStack(t, func(**runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			return p.Emit(ctx, started(), event.RunFinished{StopReason: "stop"})
		}
	}, runstest.Options{})
	e := last[event.RunError](t, follow(t, s, start(t, s, "hi").RunID))
	if e.Code != string(fault.Protocol) {
		t.Errorf("code = %s, want protocol", e.Code)
	}
}

func TestWhatAWorkerSaysOfDurabilityIsNotBelieved(t *testing.T) {
	s := newStack(t, func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			if err := p.Emit(ctx, started()); err != nil {
				return err
			}
			if err := (*s).Commit(ctx, p, "real"); err != nil {
				return err
			}
			return p.Emit(ctx, event.RunFinished{StopReason: "stop", ThreadState: event.Committed(99, "forged")})
		}
	}, runstest.Options{})
	f := last[event.RunFinished](t, follow(t, s, start(t, s, "hi").RunID))
	if *f.ThreadState.DurableRevision != 1 || *f.ThreadState.HeadRef != "real" {
		t.Errorf("thread_state = %+v, want the committed head", f.ThreadState)
	}
}

func TestAFrameOfSomebodyElseEndsTheRunAndWritesNothing(t *testing.T) {
	lies := map[string]func(*runstest.Play){
		"binding":    func(p *runstest.Play) { p.Frame.Envelope.BindingID = "hs_somebody-elses-binding" },
		"epoch":      func(p *runstest.Play) { p.Frame.Envelope.Epoch++ },
		"lower":      func(p *runstest.Play) { p.Frame.Envelope.Generation-- },
		"higher":     func(p *runstest.Play) { p.Frame.Envelope.Generation++ },
		"run":        func(p *runstest.Play) { p.Frame.Envelope.RunID = "run_other" },
		"boot nonce": func(p *runstest.Play) { p.Frame.BootNonce = "other" },
		"capability": func(p *runstest.Play) { p.Frame.CapabilityID = "other" },
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, func(**runstest.Stack) runstest.Script {
				return func(ctx context.Context, p *runstest.Play) error {
					lie(p)
					return errors.Join(p.Emit(ctx, started()), p.Text(ctx, "m1", "forged"))
				}
			}, runstest.Options{})
			r := start(t, s, "hi")
			events := follow(t, s, r.RunID)
			if e := last[event.RunError](t, events); e.Code != string(fault.StaleLease) {
				t.Errorf("code = %s, want stale_lease", e.Code)
			}
			for _, e := range events {
				if e.Type() == event.TypeTextDelta {
					t.Error("text of a forged frame is in the log")
				}
			}
		})
	}
}

func TestTheSameKeyIsTheSameRun(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{})
	req := runs.StartRequest{AgentID: "demo", ConversationID: "c1", Message: "hi", IdempotencyKey: "k1"}
	first, err := s.Runs.Start(t.Context(), runstest.Caller(), req)
	if err != nil {
		t.Fatal(err)
	}
	follow(t, s, first.RunID)
	again, err := s.Runs.Start(t.Context(), runstest.Caller(), req)
	if err != nil || again.RunID != first.RunID || again.New {
		t.Errorf("again = %+v, %v; want the same run, not new", again, err)
	}
	req.Message = "something else"
	if _, err := s.Runs.Start(t.Context(), runstest.Caller(), req); !fault.Is(err, fault.IdempotencyConflict) {
		t.Errorf("other content: %v, want idempotency_conflict", err)
	}
	if n := s.Provider.Made(); n != 1 {
		t.Errorf("%d sandboxes were made, want 1", n)
	}
}

func TestOneRunAtATime(t *testing.T) {
	release := make(chan struct{})
	s := newStack(t, func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			<-release
			return turn(s, "done")(ctx, p)
		}
	}, runstest.Options{})
	r := start(t, s, "one")
	_, err := s.Runs.Start(t.Context(), runstest.Caller(), runs.StartRequest{AgentID: "demo", ConversationID: "c1", Message: "two"})
	if !fault.Is(err, fault.AlreadyRunning) {
		t.Errorf("second run: %v, want already_running", err)
	}
	close(release)
	last[event.RunFinished](t, follow(t, s, r.RunID))
}

func TestAnotherCallersRunIsNotThere(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{})
	r := start(t, s, "hi")
	follow(t, s, r.RunID)
	for _, other := range []runs.Caller{{Subject: "user-2", Organization: "default"}, {Subject: "user-1", Organization: "other"}} {
		if _, err := s.Runs.Status(t.Context(), other, r.RunID); !fault.Is(err, fault.NotFound) {
			t.Errorf("Status: %v, want not_found", err)
		}
		if _, err := s.Runs.Events(t.Context(), other, r.RunID, 0, 10); !fault.Is(err, fault.NotFound) {
			t.Errorf("Events: %v, want not_found", err)
		}
		if _, err := s.Runs.Cancel(t.Context(), other, r.RunID, event.CancelledByClient); !fault.Is(err, fault.NotFound) {
			t.Errorf("Cancel: %v, want not_found", err)
		}
	}
}

func TestNoSandboxLeftIsSaidSo(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{})
	s.Provider.Refuse(fault.New(fault.SandboxCapacity, "test", fault.RetryAfter(6500*time.Millisecond)))
	e := last[event.RunError](t, follow(t, s, start(t, s, "hi").RunID))
	if e.Code != string(fault.SandboxCapacity) || !e.Retryable || e.SideEffectStatus != event.SideEffectsNone {
		t.Errorf("run.error = %+v, want sandbox_capacity, retryable, no side effects", e)
	}
	if after := e.RetryAfterSeconds; after == nil || *after != 7 {
		t.Errorf("retry after %v, want 7 s", after)
	}
	s.Provider.Refuse(nil)
	last[event.RunFinished](t, follow(t, s, start(t, s, "again").RunID))
}

func TestUnknownAgent(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{})
	_, err := s.Runs.Start(t.Context(), runstest.Caller(), runs.StartRequest{AgentID: "nobody", ConversationID: "c1", Message: "hi"})
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("err = %v, want not_found", err)
	}
}
