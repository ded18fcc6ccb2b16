package session

import (
	"context"
	"errors"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// The world of a hosted program may go away in the middle, and what its adapter makes
// of that may be anything. The run says that a part of the sandbox vanished, with what
// is known of its effects, and the worker, which can do nothing more, ends.
func TestTheWorldOfTheProgramVanishes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		effect bool
		want   event.SideEffectStatus
	}{
		"before any effect": {false, event.SideEffectsNone},
		"in a call":         {true, event.SideEffectsPossible},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lost := make(chan struct{})
			w := bound(t, func(c *Config) { c.Lost = lost })
			w.adapter.play(func(ctx context.Context, _ harness.Turn, _ harness.Facades, emit harness.Emitter) (harness.Result, error) {
				if c.effect {
					call := event.ToolStarted{ToolCallID: "c", ToolName: "bash", Arguments: event.EmptyObject}
					if err := emit.Emit(ctx, event.Draft{Data: call}); err != nil {
						return harness.Result{}, err
					}
				}
				close(lost)
				return harness.Result{}, fault.Wrap(errors.New("output ended within a line"), fault.Protocol, "adapter")
			})
			r := w.start(t, "run-1")
			end, ok := ends(t, r).(event.RunError)
			if !ok || end.Code != string(fault.SandboxEvicted) || end.Retryable || end.SideEffectStatus != c.want {
				t.Errorf("ended as %+v", end)
			}
			<-w.Done()
			_, err := w.Start(t.Context(), envelope("run-2"), turn("run-2", "hi"), fresh)
			wantCode(t, err, fault.SandboxNotReady)
		})
	}
}

// A cancel stands although the world went with what was cancelled, and a head that is
// committed does, too.
func TestTheWorldVanishesAfterTheEndWasDecided(t *testing.T) {
	t.Parallel()
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		lost, begun := make(chan struct{}), make(chan struct{})
		w := bound(t, func(c *Config) { c.Lost = lost })
		w.adapter.play(func(ctx context.Context, _ harness.Turn, _ harness.Facades, _ harness.Emitter) (harness.Result, error) {
			close(begun)
			<-ctx.Done()
			close(lost)
			return harness.Result{}, fault.New(fault.SandboxEvicted, "adapter")
		})
		r := w.start(t, "run-1")
		<-begun
		r.cancel(event.CancelledByClient)
		if end, ok := ends(t, r).(event.RunCancelled); !ok || end.Reason != event.CancelledByClient {
			t.Errorf("ended as %+v", end)
		}
		<-w.Done()
	})
	t.Run("committed", func(t *testing.T) {
		t.Parallel()
		lost := make(chan struct{})
		w := bound(t, func(c *Config) { c.Lost = lost })
		w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, _ harness.Emitter) (harness.Result, error) {
			err := f.Thread.Commit(ctx, harness.Codec{}, 0, nil)
			close(lost)
			return harness.Result{StopReason: "end_turn"}, errors.Join(err, fault.New(fault.SandboxEvicted, "adapter"))
		})
		r := w.start(t, "run-1")
		if end, ok := ends(t, r).(event.RunFinished); !ok {
			t.Errorf("ended as %+v", end)
		}
		<-w.Done()
	})
}

// A worker whose world goes between two runs ends by itself, so that its lease is
// replaced before anybody asks it for anything.
func TestTheWorldVanishesBetweenRuns(t *testing.T) {
	t.Parallel()
	lost := make(chan struct{})
	w := bound(t, func(c *Config) { c.Lost = lost })
	close(lost)
	<-w.Done()
}
