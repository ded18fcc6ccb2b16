package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		w.adapter.play(waits)
		r := w.start(t, "run-1")
		synctest.Wait()
		for range 2 { // the second is harmless
			if err := w.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-w.Done():
		default:
			t.Error("the session is not done")
		}
		if w.adapter.running.Load() != 0 {
			t.Error("the harness still runs")
		}
		if w.adapter.cleanups.Load() != 1 || !w.connector.closed {
			t.Errorf("cleanups: %d, connector closed: %v", w.adapter.cleanups.Load(), w.connector.closed)
		}
		wantEnd(t, ends(t, r), cancelled(event.CancelledByShutdown, event.SideEffectsNone))
		_, err := w.Start(t.Context(), envelope("run-2"), turn("run-2", "hi"), fresh)
		wantCode(t, err, fault.SandboxNotReady)
		wantCode(t, w.Bind(t.Context(), right(), w.connect), fault.SandboxNotReady)
		if got := w.Cancel(t.Context(), "run-1", event.CancelledByClient); !got.Stopped {
			t.Error("a cancel after the shutdown says that something runs")
		}
	})
}

func TestShutdownUnbound(t *testing.T) {
	w := newWorker(t)
	if err := w.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Two at once: one does it, the other waits for it.
func TestShutdownTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		cleaned := make(chan struct{})
		w.adapter.cleanup = func(context.Context) error { <-cleaned; return nil }
		answers := make(chan error, 2)
		for range 2 {
			go func() { answers <- w.Shutdown(t.Context()) }()
		}
		synctest.Wait()
		select {
		case err := <-answers:
			t.Fatalf("one was answered before the cleanup: %v", err)
		default:
		}
		close(cleaned)
		for range 2 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		if n := w.adapter.cleanups.Load(); n != 1 {
			t.Errorf("%d cleanups", n)
		}
	})
}

// What does not end in time is said, and the worker is done all the same: the end
// of the process ends it.
func TestShutdownHasADeadline(t *testing.T) {
	for name, grace := range map[string]time.Duration{"of the bind": 3 * time.Second, "by default": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorker(t)
				b := right()
				b.ShutdownGrace = grace
				w.bind(t, b)
				release := make(chan struct{})
				defer close(release)
				w.adapter.play(func(context.Context, harness.Turn, harness.Facades, harness.Emitter) (harness.Result, error) {
					<-release
					return harness.Result{}, nil
				})
				r := w.start(t, "run-1")
				synctest.Wait()
				r.Disconnected()
				began := time.Now()
				wantCode(t, w.Shutdown(t.Context()), fault.DeadlineExceeded)
				want := grace
				if want == 0 {
					want = defaultGrace
				}
				if took := time.Since(began); took != want {
					t.Errorf("it took %v", took)
				}
				<-w.Done()
			})
		})
	}
}

func TestCleanupFails(t *testing.T) {
	for name, cleanup := range map[string]func(context.Context) error{
		"error": func(context.Context) error { return errors.New("left over") },
		"panic": func(context.Context) error { panic("of the adapter") },
	} {
		t.Run(name, func(t *testing.T) {
			w := bound(t)
			w.adapter.cleanup = cleanup
			wantCode(t, w.Shutdown(t.Context()), fault.Internal)
			if !w.connector.closed {
				t.Error("the connector was not closed")
			}
		})
	}
}
