package runs_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// The lease is replaced between the admission of the run and the write of its
// events: the write does not happen, and the run ends without them.
func TestEventsOfAReplacedLeaseAreNotWritten(t *testing.T) {
	s := newStack(t, func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			if err := p.Emit(ctx, started()); err != nil {
				return err
			}
			if err := p.Text(ctx, "m1", "before"); err != nil {
				return err
			}
			// A run that has nothing in the log yet would be carried over.
			if err := committed(ctx, *s, p); err != nil {
				return err
			}
			e := p.Turn.Envelope
			if _, err := (*s).Writer.Replace(ctx, e.BindingID, e.Epoch, e.Generation, func(g uint32) string { return binding.ClaimName(e.BindingID, g) }, "default"); err != nil {
				return err
			}
			return errors.Join(p.Text(ctx, "m2", "after"), p.Emit(ctx, event.RunFinished{StopReason: "stop"}))
		}
	}, runstest.Options{})
	r := start(t, s, "hi")
	events := follow(t, s, r.RunID)
	if e := last[event.RunError](t, events); e.Code != string(fault.ControlPlaneLost) {
		t.Errorf("code = %s, want control_plane_lost", e.Code)
	}
	for _, e := range events {
		if d, ok := e.Data.(event.TextDelta); ok && d.Delta == "after" {
			t.Error("text of the replaced generation is in the log")
		}
	}
	last[event.RunFinished](t, follow(t, s, next(t, s).RunID))
}

func next(t *testing.T, s *runstest.Stack) runs.Started {
	t.Helper()
	s.Workers.Play(turn(&s, "on the next generation"))
	return start(t, s, "again")
}

// A slow or broken store holds a run back; it neither loses nor doubles an
// event, also when replies are lost after the write has happened.
func TestAStoreThatFailsNowAndThenLosesAndDoublesNothing(t *testing.T) {
	store := &rpctest.Backend{Backend: bindingtest.NewMemory()}
	var n atomic.Int64
	lost := errors.New("reply lost")
	s := newStack(t, func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			store.AfterWrite(func(err error) error {
				if err == nil && n.Add(1)%3 == 0 {
					return lost
				}
				return err
			})
			defer store.AfterWrite(nil)
			if err := p.Emit(ctx, started(), event.TextStarted{MessageID: "m1"}); err != nil {
				return err
			}
			for range 40 {
				if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: "x"}); err != nil {
					return err
				}
				if err := committed(ctx, *s, p); err != nil { // else one write might take them all
					return err
				}
			}
			if err := p.Emit(ctx, event.TextFinished{MessageID: "m1"}); err != nil {
				return err
			}
			if err := (*s).Commit(ctx, p, "ref"); err != nil {
				return err
			}
			return p.Emit(ctx, event.RunFinished{StopReason: "stop"})
		}
	}, runstest.Options{Backend: store})
	events := follow(t, s, start(t, s, "hi").RunID)
	last[event.RunFinished](t, events)
	var text strings.Builder
	for _, e := range events {
		if d, ok := e.Data.(event.TextDelta); ok {
			text.WriteString(d.Delta)
		}
	}
	if text.Len() != 40 {
		t.Errorf("%d of 40 deltas are in the log", text.Len())
	}
	if n.Load() < 10 {
		t.Errorf("only %d writes were seen: the fault was not tried", n.Load())
	}
}
