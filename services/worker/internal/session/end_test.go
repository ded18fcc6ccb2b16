package session

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		w.adapter.play(waits)
		r := w.start(t, "run-1")
		synctest.Wait()
		if got := w.Cancel(t.Context(), "run-1", event.CancelledByClient); got != (Cancelled{Active: true, Stopped: true}) {
			t.Errorf("during the run: %+v", got)
		}
		w.Cancel(t.Context(), "run-1", event.CancelledByShutdown) // the first reason stands
		wantEnd(t, ends(t, r), cancelled(event.CancelledByClient, event.SideEffectsNone))
		synctest.Wait()
		if got := w.Cancel(t.Context(), "run-1", event.CancelledByClient); got != (Cancelled{Stopped: true}) {
			t.Errorf("after the run: %+v", got)
		}
	})
}

// A cancel is not confirmed before the harness has really stopped. Its answer
// waits for that, and no longer than it may.
func TestCancelOfAHarnessThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		release := make(chan struct{})
		w.adapter.play(func(ctx context.Context, _ harness.Turn, _ harness.Facades, _ harness.Emitter) (harness.Result, error) {
			<-release
			return harness.Result{}, ctx.Err()
		})
		r := w.start(t, "run-1")
		synctest.Wait()
		cancel := func(ctx context.Context, want Cancelled, took time.Duration) {
			t.Helper()
			began := time.Now()
			if got := w.Cancel(ctx, "run-1", event.CancelledByClient); got != want || time.Since(began) != took {
				t.Errorf("it says %+v after %v", got, time.Since(began))
			}
		}
		cancel(t.Context(), Cancelled{Active: true}, cancelWait)
		short, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		cancel(short, Cancelled{Active: true}, time.Second)
		_, err := w.Start(t.Context(), envelope("run-2"), turn("run-2", "hi"), fresh)
		wantCode(t, err, fault.AlreadyRunning)
		go func() {
			time.Sleep(time.Second) //nolint:forbidigo // in a synctest bubble
			close(release)
		}()
		cancel(t.Context(), Cancelled{Active: true, Stopped: true}, time.Second)
		wantEnd(t, ends(t, r), cancelled(event.CancelledByClient, event.SideEffectsNone))
		cancel(t.Context(), Cancelled{Stopped: true}, 0)
	})
}

// A cancel that comes before its start is remembered: the run is over before
// anything has happened.
func TestCancelBeforeStart(t *testing.T) {
	w := bound(t)
	if got := w.Cancel(t.Context(), "run-1", event.CancelledByClient); got != (Cancelled{Stopped: true}) {
		t.Errorf("before the run: %+v", got)
	}
	w.Cancel(t.Context(), "run-1", event.CancelledByDeadline)
	events := read(t, w.start(t, "run-1"))
	if got := types(events); got != "run.started run.cancelled " {
		t.Errorf("events: %s", got)
	}
	wantEnd(t, events[1].Data, cancelled(event.CancelledByClient, event.SideEffectsNone))
	if w.adapter.streams.Load() != 0 {
		t.Error("the harness ran")
	}
	wantEnd(t, ends(t, w.start(t, "run-2")), event.RunFinished{StopReason: "stop"})
}

// Cancels for runs that never come do not take the place of later ones.
func TestEarlyCancelsAreBounded(t *testing.T) {
	w := bound(t)
	for range 3 * keptCancels {
		w.Cancel(t.Context(), "never-"+strings.Repeat("x", len(w.early)), event.CancelledByClient)
	}
	w.Cancel(t.Context(), "run-1", event.CancelledByClient)
	if len(w.early) > keptCancels {
		t.Errorf("%d are kept", len(w.early))
	}
	wantEnd(t, ends(t, w.start(t, "run-1")), cancelled(event.CancelledByClient, event.SideEffectsNone))
}

// A deadline ends a run also when nobody calls, and says so although the stream
// breaks at the same moment.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		w.adapter.play(waits)
		began := time.Now()
		r := w.start(t, "run-1")
		time.Sleep(runTime) //nolint:forbidigo // in a synctest bubble
		synctest.Wait()
		if w.adapter.running.Load() != 0 {
			t.Fatal("the harness runs after the deadline")
		}
		r.Disconnected()
		wantEnd(t, ends(t, r), cancelled(event.CancelledByDeadline, event.SideEffectsNone))
		if took := time.Since(began); took != runTime {
			t.Errorf("it ended after %v", took)
		}
	})
}

// Whoever works for a run ends at its deadline, and may be a little early: that is
// the deadline. Only then is it, and only where it ended for want of time.
func TestErrorsNearTheDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		code  fault.Code
		want  event.Type
	}{
		"a stream that breaks just before":  {runTime - nearDeadline, fault.ModelFailed, event.TypeRunCancelled},
		"a peer whose clock is ahead":       {runTime - nearDeadline, fault.DeadlineExceeded, event.TypeRunCancelled},
		"a peer that was ended":             {runTime - nearDeadline, fault.Cancelled, event.TypeRunCancelled},
		"a capability that has expired":     {runTime - nearDeadline, fault.CapabilityExpired, event.TypeRunCancelled},
		"a stream that breaks earlier":      {runTime - nearDeadline - 1, fault.ModelFailed, event.TypeRunError},
		"a peer whose clock is far ahead":   {runTime - nearDeadline - 1, fault.DeadlineExceeded, event.TypeRunError},
		"a lease that was taken over":       {runTime - 1, fault.StaleLease, event.TypeRunError},
		"a commit that nobody is sure of":   {runTime - 1, fault.ThreadDurabilityUncertain, event.TypeRunError},
		"whatever comes after the deadline": {runTime + 1, fault.Protocol, event.TypeRunCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := bound(t)
				w.adapter.play(func(context.Context, harness.Turn, harness.Facades, harness.Emitter) (harness.Result, error) {
					time.Sleep(c.after) //nolint:forbidigo // in a synctest bubble
					return harness.Result{}, fault.New(c.code, "test")
				})
				got := ends(t, w.start(t, "run-1"))
				if got.Type() != c.want {
					t.Errorf("it ended by %#v", got)
				}
				if e, ok := got.(event.RunCancelled); ok && e.Reason != event.CancelledByDeadline {
					t.Errorf("it ended by %#v", got)
				}
			})
		})
	}
}

// A cancel that was decided before the commit ends the run, whatever the harness
// makes of that.
func TestCancelDecidedFirst(t *testing.T) {
	for name, after := range map[string]error{"and says so": nil, "and says something else": fault.New(fault.ModelFailed, "test")} {
		t.Run(name, func(t *testing.T) {
			w := bound(t)
			w.connector.moves = true
			w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, _ harness.Emitter) (harness.Result, error) {
				err := f.Thread.Commit(ctx, harness.Codec{}, 0, nil)
				if after != nil {
					err = after
				}
				return harness.Result{}, err
			})
			wantEnd(t, ends(t, w.start(t, "run-1")), cancelled(event.CancelledByClient, event.SideEffectsNone))
		})
	}
}

// How a harness ends its run, and what the worker makes of it.
func TestEnds(t *testing.T) {
	started := event.ToolStarted{ToolCallID: "c", ToolName: "fs.read", Arguments: event.EmptyObject}
	finished := event.ToolFinished{ToolCallID: "c", Result: `"done"`}
	failed := event.ToolError{ToolCallID: "c", Code: "tool_outcome_unknown", Message: "unknown"}
	fails := func(err error, before ...event.Data) script {
		return func(ctx context.Context, _ harness.Turn, _ harness.Facades, emit harness.Emitter) (harness.Result, error) {
			return harness.Result{}, errors.Join(emitAll(ctx, emit, before...), err)
		}
	}
	retryAfter := uint64(3)
	failure := func(code fault.Code, effects event.SideEffectStatus) event.RunError {
		return event.RunError{Code: string(code), Message: code.Message(), Retryable: code.Retryable(), SideEffectStatus: effects}
	}
	throttled := failure(fault.RateLimited, event.SideEffectsNone)
	throttled.RetryAfterSeconds = &retryAfter
	for name, c := range map[string]struct {
		script script
		want   event.Data
	}{
		"by a fault":               {fails(fault.New(fault.ModelFailed, "test")), failure(fault.ModelFailed, event.SideEffectsNone)},
		"by an error":              {fails(errors.New("secret text")), failure(fault.Internal, event.SideEffectsNone)},
		"with time to wait":        {fails(fault.New(fault.RateLimited, "test", fault.RetryAfter(2500*time.Millisecond))), throttled},
		"with a tool open":         {fails(fault.New(fault.ModelFailed, "test"), started), failure(fault.ModelFailed, event.SideEffectsPossible)},
		"after a tool":             {fails(fault.New(fault.ModelFailed, "test"), started, finished), failure(fault.ModelFailed, event.SideEffectsKnown)},
		"after a tool that failed": {fails(fault.New(fault.ModelFailed, "test"), started, failed), failure(fault.ModelFailed, event.SideEffectsPossible)},
		"a facade was cancelled":   {fails(fault.New(fault.Cancelled, "test")), failure(fault.DependencyUnavailable, event.SideEffectsNone)},
		"a facade took too long":   {fails(fault.New(fault.DeadlineExceeded, "test")), failure(fault.DeadlineExceeded, event.SideEffectsNone)},
		"without a commit":         {fails(nil), failure(fault.Protocol, event.SideEffectsNone)},
		"by a panic": {func(context.Context, harness.Turn, harness.Facades, harness.Emitter) (harness.Result, error) {
			panic("of the adapter")
		}, failure(fault.Internal, event.SideEffectsNone)},
		"by the end of its goroutine": {func(context.Context, harness.Turn, harness.Facades, harness.Emitter) (harness.Result, error) {
			runtime.Goexit()
			return harness.Result{}, nil
		}, failure(fault.Internal, event.SideEffectsNone)},
		"a panic after the commit": {func(ctx context.Context, _ harness.Turn, f harness.Facades, _ harness.Emitter) (harness.Result, error) {
			if err := f.Thread.Commit(ctx, harness.Codec{}, 0, nil); err != nil {
				return harness.Result{}, err
			}
			panic("of the adapter")
		}, event.RunFinished{StopReason: "unknown"}},
		"a stop reason that is no id": {func(ctx context.Context, _ harness.Turn, f harness.Facades, _ harness.Emitter) (harness.Result, error) {
			return harness.Result{StopReason: "the model said <b>so</b>"}, f.Thread.Commit(ctx, harness.Codec{}, 0, nil)
		}, event.RunFinished{StopReason: "unknown"}},
		"a commit with a text open": {func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
			if err := emitAll(ctx, emit, event.TextStarted{MessageID: "m"}); err != nil {
				return harness.Result{}, err
			}
			return harness.Result{}, f.Thread.Commit(ctx, harness.Codec{}, 0, nil)
		}, failure(fault.Protocol, event.SideEffectsNone)},
	} {
		t.Run(name, func(t *testing.T) {
			w := bound(t)
			w.adapter.play(c.script)
			got := ends(t, w.start(t, "run-1"))
			if e, ok := got.(event.RunError); ok && e.RetryAfterSeconds != nil && *e.RetryAfterSeconds == retryAfter {
				e.RetryAfterSeconds = &retryAfter // compared by value
				got = e
			}
			wantEnd(t, got, c.want)
			w.adapter.play(says("next"))
			wantEnd(t, ends(t, w.start(t, "run-2")), event.RunFinished{StopReason: "stop"})
		})
	}
}

// A run whose head is committed has finished, whatever is asked afterwards.
func TestCancelAfterTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, _ harness.Emitter) (harness.Result, error) {
			if err := f.Thread.Commit(ctx, harness.Codec{}, 0, nil); err != nil {
				return harness.Result{}, err
			}
			<-ctx.Done()
			return harness.Result{StopReason: "stop"}, ctx.Err()
		})
		r := w.start(t, "run-1")
		synctest.Wait()
		w.Cancel(t.Context(), "run-1", event.CancelledByClient)
		wantEnd(t, ends(t, r), event.RunFinished{StopReason: "stop"})
	})
}

// A cancelled run does not go on writing state.
func TestNoCommitAfterACancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		committed := make(chan error, 1)
		w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, _ harness.Emitter) (harness.Result, error) {
			<-ctx.Done()
			committed <- f.Thread.Commit(context.WithoutCancel(ctx), harness.Codec{}, 0, nil)
			return harness.Result{}, nil
		})
		r := w.start(t, "run-1")
		synctest.Wait()
		w.Cancel(t.Context(), "run-1", event.CancelledByClient)
		wantEnd(t, ends(t, r), cancelled(event.CancelledByClient, event.SideEffectsNone))
		wantCode(t, <-committed, fault.Cancelled)
	})
}

// A commit that fails ends the run by its code.
func TestCommitFails(t *testing.T) {
	for _, code := range []fault.Code{fault.RevisionConflict, fault.ThreadDurabilityUncertain, fault.StaleLease} {
		t.Run(string(code), func(t *testing.T) {
			w := bound(t)
			w.connector.commit = func() error { return fault.New(code, "test") }
			wantError(t, ends(t, w.start(t, "run-1")), code)
		})
	}
}
