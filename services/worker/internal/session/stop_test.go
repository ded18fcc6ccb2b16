package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// hangs ignores its context until it is released, after what it does before.
func hangs(release <-chan struct{}, before script) script {
	return func(ctx context.Context, in harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
		result, err := harness.Result{}, error(nil)
		if before != nil {
			result, err = before(ctx, in, f, emit)
		}
		<-release
		return result, err
	}
}

// A harness that does not stop is given up after a bound, whoever ended its run:
// the run's end says that, and never that it was cancelled, and the worker ends.
func TestHarnessThatDoesNotStop(t *testing.T) {
	for name, end := range map[string]func(*worker, *Run){
		"a cancel":             func(w *worker, r *Run) { w.Cancel(context.WithoutCancel(r.ctx), "run-1", event.CancelledByClient) },
		"a lost control plane": func(_ *worker, r *Run) { r.Disconnected() },
		"the deadline":         func(_ *worker, r *Run) { <-r.ctx.Done() },
		"a broken lifecycle": func(_ *worker, r *Run) {
			_ = r.Emit(r.ctx, event.Draft{Data: event.TextDelta{MessageID: "m", Delta: "x"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := bound(t, func(c *Config) { c.StopTimeout = 5 * time.Second })
				release := make(chan struct{})
				defer close(release)
				w.adapter.play(hangs(release, nil))
				r := w.start(t, "run-1")
				synctest.Wait()
				end(w, r)
				over := time.Now()
				got := ends(t, r)
				wantError(t, got, fault.SandboxLimit)
				if e, ok := got.(event.RunError); !ok || e.SideEffectStatus != event.SideEffectsPossible {
					t.Errorf("its effects are %+v", got)
				}
				if took := time.Since(over); took > 5*time.Second || took < 3*time.Second { // a cancel was answered after 2 s
					t.Errorf("it took %v", took)
				}
				// From here on nothing begins, and the worker ends by itself.
				if w.Ready(t.Context()).Ready {
					t.Error("ready with a harness that goes on")
				}
				_, err := w.Start(t.Context(), envelope("run-2"), turn("run-2", "hi"), fresh)
				wantCode(t, err, fault.SandboxNotReady)
				if got := w.Cancel(t.Context(), "run-1", event.CancelledByClient); got != (Cancelled{}) {
					t.Errorf("a cancel says %+v", got)
				}
				<-w.Done()
				if w.adapter.cleanups.Load() != 1 || !w.connector.closed {
					t.Error("nothing was cleaned up")
				}
			})
		})
	}
}

// What it does after that reaches nobody, and its late end changes nothing.
func TestHarnessThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		release, late := make(chan struct{}), make(chan error, 2)
		w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
			<-release
			own := context.WithoutCancel(ctx)
			late <- emitAll(own, emit, event.TextStarted{MessageID: "m"})
			late <- f.Thread.Commit(own, harness.Codec{}, 0, nil)
			return harness.Result{StopReason: "stop"}, nil
		})
		r := w.start(t, "run-1")
		synctest.Wait()
		w.Cancel(t.Context(), "run-1", event.CancelledByClient)
		wantError(t, ends(t, r), fault.SandboxLimit)
		close(release)
		wantCode(t, <-late, fault.Protocol)
		wantCode(t, <-late, fault.Cancelled)
		<-r.stopped
		if got := w.Cancel(t.Context(), "run-1", event.CancelledByClient); got != (Cancelled{Stopped: true}) {
			t.Errorf("a cancel says %+v", got)
		}
		if events, err := r.Next(t.Context()); err == nil {
			t.Errorf("more came: %v", events)
		}
	})
}

// What a committed head decided stands, although its harness hangs.
func TestHarnessThatHangsAfterItsCommit(t *testing.T) {
	ask := form("int-1")
	for name, c := range map[string]struct {
		before  script
		want    event.Data
		pending Interrupt
	}{
		"success":     {says("x"), event.RunFinished{StopReason: unknownStopReason}, Interrupt{}},
		"interrupted": {asks(ask), interrupted(ask), Interrupt{ID: "int-1", Type: event.InterruptFormInput, Revision: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := bound(t)
				release := make(chan struct{})
				defer close(release)
				w.adapter.play(hangs(release, c.before))
				wantEnd(t, ends(t, w.start(t, "run-1")), c.want) // at the deadline, and the bound
				w.wantPending(t, c.pending)
				<-w.Done()
			})
		})
	}
}

// A harness that stops within the bound is no trouble.
func TestHarnessThatStopsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		w.adapter.play(func(ctx context.Context, _ harness.Turn, _ harness.Facades, _ harness.Emitter) (harness.Result, error) {
			<-ctx.Done()
			time.Sleep(DefaultStopTimeout - time.Millisecond) //nolint:forbidigo // in a synctest bubble
			return harness.Result{}, ctx.Err()
		})
		r := w.start(t, "run-1")
		synctest.Wait()
		r.Disconnected()
		wantEnd(t, ends(t, r), cancelled(event.CancelledByDisconnect, event.SideEffectsNone))
		time.Sleep(time.Minute) //nolint:forbidigo // in a synctest bubble
		if !w.Ready(t.Context()).Ready {
			t.Error("the worker has ended")
		}
	})
}

// A worker that nobody binds and nobody asks for ends by itself; whoever asks for
// ready, or tries to bind, keeps it.
func TestUnboundWorkerEnds(t *testing.T) {
	const bound = time.Minute
	short := func(c *Config) { c.UnboundTimeout = bound }
	ended := func(w *worker) bool {
		synctest.Wait()
		select {
		case <-w.Done():
			return true
		default:
			return false
		}
	}
	t.Run("alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker(t, short)
			time.Sleep(bound - 1) //nolint:forbidigo // in a synctest bubble
			if ended(w) {
				t.Error("it ended too early")
			}
			time.Sleep(time.Nanosecond) //nolint:forbidigo // in a synctest bubble
			if !ended(w) || w.Ready(t.Context()).Ready {
				t.Error("it waits on")
			}
			wantCode(t, w.Bind(t.Context(), right(), w.connect), fault.SandboxNotReady)
		})
	})
	t.Run("by default", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker(t)
			began := time.Now()
			<-w.Done()
			if time.Since(began) != DefaultUnboundTimeout {
				t.Errorf("after %v", time.Since(began))
			}
		})
	})
	t.Run("asked for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker(t, short)
			for range 10 {
				time.Sleep(bound - 1) //nolint:forbidigo // in a synctest bubble
				w.Ready(t.Context())
			}
			other := right()
			other.Expected.BootNonce = "another"
			wantCode(t, w.Bind(t.Context(), other, w.connect), fault.WorkerMismatch)
			time.Sleep(bound - 1) //nolint:forbidigo // in a synctest bubble
			if ended(w) {
				t.Error("it ended although it was asked for")
			}
			time.Sleep(time.Nanosecond) //nolint:forbidigo // in a synctest bubble
			if !ended(w) {
				t.Error("it waits on")
			}
		})
	})
	t.Run("while it is bound", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker(t, short)
			w.adapter.initialize = func(context.Context, harness.Construction) error {
				time.Sleep(3 * bound) //nolint:forbidigo // in a synctest bubble
				return nil
			}
			w.bind(t, right())
			time.Sleep(10 * bound) //nolint:forbidigo // in a synctest bubble
			if ended(w) {
				t.Error("a bound worker ended")
			}
		})
	})
}

// A harness that hangs is cleaned up all the same, which may well end it.
func TestShutdownCleansUpAroundAHarnessThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		release := make(chan struct{})
		w.adapter.cleanup = func(ctx context.Context) error {
			close(release)
			return ctx.Err()
		}
		w.adapter.play(hangs(release, nil))
		r := w.start(t, "run-1")
		synctest.Wait()
		began := time.Now()
		if err := w.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != defaultGrace/2 {
			t.Errorf("it took %v", took)
		}
		wantEnd(t, ends(t, r), cancelled(event.CancelledByShutdown, event.SideEffectsNone))
	})
}
