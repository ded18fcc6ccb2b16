package runs_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// Characters that encoding/json escapes must not lengthen an event past its
// bound: the log would not replay, and the run would never end.
func TestALogOfAnglesEnds(t *testing.T) {
	s := newStack(t, func(s **runstest.Stack) runstest.Script {
		return turn(s, strings.Repeat("<&>", event.MaxDeltaBytes/3))
	}, runstest.Options{})
	last[event.RunFinished](t, follow(t, s, start(t, s, "hi").RunID))
}

// Whatever a worker made of its log, a run whose end is decided gets a terminal
// and leaves the record.
func TestALogThatDeniesItsEndIsEndedAllTheSame(t *testing.T) {
	s := newStack(t, func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			asks := event.InterruptRequested{
				InterruptID: "i1", InterruptType: event.InterruptFormInput, AgentID: "demo", Prompt: "Which?",
				Fields: []event.FormField{{FieldName: "which", FieldType: "text", Required: true}},
			}
			if err := p.Emit(ctx, started(), asks); err != nil {
				return err
			}
			return (*s).Commit(ctx, p, "ref") // success, although it has asked
		}
	}, runstest.Options{})
	r := start(t, s, "hi")
	if d := document(t, s, r.RunID); d.End.Kind != binding.EndSuccess || d.Events != 3 {
		t.Errorf("document = %+v, want success with one terminal", d)
	}
	s.Workers.Play(turn(&s, "next"))
	last[event.RunFinished](t, follow(t, s, start(t, s, "again").RunID))
}

func TestAnInterruptThatNobodyCommitsBreaksTheProtocol(t *testing.T) {
	s := newStack(t, func(**runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			return p.Emit(ctx, started(), event.InterruptRequested{
				InterruptID: "i1", InterruptType: event.InterruptFormInput, AgentID: "demo", Prompt: "Which?",
				Fields: []event.FormField{{FieldName: "which", FieldType: "text", Required: true}},
			}, event.RunInterrupted{InterruptID: "i1", Reason: event.InterruptedForHumanInput})
		}
	}, runstest.Options{})
	if e := last[event.RunError](t, follow(t, s, start(t, s, "hi").RunID)); e.Code != string(fault.Protocol) {
		t.Errorf("code = %s", e.Code)
	}
}

// Between the commit of a start and its reply the run is nobody's to take over.
func TestAStartWhoseReplyIsSlowIsNotTakenOver(t *testing.T) {
	store := &rpctest.Backend{Backend: bindingtest.NewMemory()}
	var slow atomic.Bool
	s := newStack(t, say("hello"), runstest.Options{Backend: store})
	store.AfterWrite(func(err error) error {
		if slow.CompareAndSwap(true, false) {
			injectDelay(t)
			injectDelay(t)
			injectDelay(t)
		}
		return err
	})
	warm := start(t, s, "warm")
	follow(t, s, warm.RunID)
	waittest.Until(t, "concluded", func() bool {
		return s.Record(t, warm.BindingID).Run == nil && len(s.Record(t, warm.BindingID).Ending) == 0
	})
	slow.Store(true)
	last[event.RunFinished](t, follow(t, s, start(t, s, "hi").RunID))
}

// A frame that no honest worker sends ends the run at once, not at its deadline.
func TestAFrameThatIsTooLargeIsABrokenProtocol(t *testing.T) {
	s := newStack(t, func(**runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			events := []event.Data{started(), event.TextStarted{MessageID: "m1"}}
			for range 12 {
				events = append(events, event.TextDelta{MessageID: "m1", Delta: strings.Repeat("x", event.MaxDeltaBytes-1)})
			}
			return p.Emit(ctx, events...)
		}
	}, runstest.Options{})
	if e := last[event.RunError](t, follow(t, s, start(t, s, "hi").RunID)); e.Code != string(fault.Protocol) {
		t.Errorf("code = %s, want protocol", e.Code)
	}
}

// A store that is away at the very end holds the run back; it makes nobody lost.
func TestAStoreThatIsAwayAtTheEndChangesNoEnd(t *testing.T) {
	store := &rpctest.Backend{Backend: bindingtest.NewMemory()}
	s := newStack(t, func(**runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			if err := errors.Join(p.Emit(ctx, started()), p.Emit(ctx, event.Warning{Code: "note", Message: "on"})); err != nil {
				return err
			}
			store.RefuseWrites(errors.New("away"))
			go func() { // the store comes back by itself
				injectDelay(t)
				injectDelay(t)
				store.RefuseWrites(nil)
			}()
			return p.Emit(ctx, event.RunError{Code: string(fault.ModelFailed), Message: fault.ModelFailed.Message(), SideEffectStatus: event.SideEffectsNone})
		}
	}, runstest.Options{Backend: store})
	if e := last[event.RunError](t, follow(t, s, start(t, s, "hi").RunID)); e.Code != string(fault.ModelFailed) {
		t.Errorf("code = %s, want model_failed", e.Code)
	}
}

// A worker cannot say that a client cancelled.
func TestAWorkerCannotCancelForTheClient(t *testing.T) {
	for _, reason := range []event.CancelReason{event.CancelledByClient, event.CancelledByDisconnect, event.CancelledByDeadline} {
		t.Run(string(reason), func(t *testing.T) {
			s := newStack(t, func(**runstest.Stack) runstest.Script {
				return func(ctx context.Context, p *runstest.Play) error {
					return p.Emit(ctx, started(), event.RunCancelled{Reason: reason, SideEffectStatus: event.SideEffectsNone})
				}
			}, runstest.Options{})
			if e := last[event.RunError](t, follow(t, s, start(t, s, "hi").RunID)); e.Code != string(fault.Protocol) {
				t.Errorf("code = %s, want protocol", e.Code)
			}
		})
	}
}

// Sandboxes that nobody uses are given back, and the conversation goes on.
func TestAnIdleSandboxIsGivenBack(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{Change: func(c *runs.Config) { c.IdleAfter = 200 * time.Millisecond }})
	r := start(t, s, "hi")
	follow(t, s, r.RunID)
	waittest.Until(t, "no sandbox lives", func() bool {
		live, err := s.Provider.List(t.Context())
		return err == nil && len(live) == 0
	})
	f := last[event.RunFinished](t, follow(t, s, start(t, s, "two").RunID))
	if *f.ThreadState.DurableRevision != 2 || s.Record(t, r.BindingID).Generation < 2 {
		t.Errorf("revision %d in generation %d", *f.ThreadState.DurableRevision, s.Record(t, r.BindingID).Generation)
	}
}

// hanging is a provider whose releases never end.
type hanging struct{ *runstest.Provider }

func (hanging) Release(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// A claim that waits to be deleted holds nobody up.
func TestAReleaseThatHangsHoldsNobodyUp(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{Change: func(c *runs.Config) {
		p, ok := c.Provider.(*runstest.Provider)
		if !ok {
			t.Fatal("another provider")
		}
		c.Provider = hanging{p}
		c.CancelGrace = time.Hour
	}})
	r := start(t, s, "hi")
	follow(t, s, r.RunID)
	waittest.Until(t, "concluded", func() bool { return s.Record(t, r.BindingID).Run == nil })
	s.Provider.Kill(s.Record(t, r.BindingID).Lease.ClaimName)
	waittest.Until(t, "replaced", func() bool { return s.Record(t, r.BindingID).Generation == 2 })
	last[event.RunFinished](t, follow(t, s, start(t, s, "two").RunID))
}
