package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// A harness that breaks the lifecycle ends in one clean run.error, also one that
// does not look at the error.
func TestHarnessBreaksTheLifecycle(t *testing.T) {
	for name, data := range map[string][]event.Data{
		"started twice":       {event.RunStarted{HarnessID: "scripted", AdapterVersion: "1"}},
		"its own terminal":    {event.RunFinished{StopReason: "stop"}},
		"its own error":       {event.RunError{Code: "internal", Message: "raw stderr", SideEffectStatus: event.SideEffectsNone}},
		"nothing":             {nil},
		"a pointer":           {&event.TextStarted{MessageID: "m"}},
		"a delta of no text":  {event.TextDelta{MessageID: "m", Delta: "x"}},
		"an id twice":         {event.TextStarted{MessageID: "m"}, event.TextFinished{MessageID: "m"}, event.TextStarted{MessageID: "m"}},
		"not UTF-8":           {event.TextStarted{MessageID: "m"}, event.TextDelta{MessageID: "m", Delta: "\xff"}},
		"a control character": {event.TextStarted{MessageID: "m"}, event.TextDelta{MessageID: "m", Delta: "\x1b[2J"}},
		"too large":           {event.TextStarted{MessageID: "m"}, event.TextDelta{MessageID: "m", Delta: strings.Repeat("x", event.MaxDeltaBytes+1)}},
		"an unopened tool":    {event.ToolFinished{ToolCallID: "c", Result: "1"}},
		"no object":           {event.ToolStarted{ToolCallID: "c", ToolName: "fs.read", Arguments: "[]"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := bound(t)
			var last error
			w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
				for _, d := range data {
					last = emit.Emit(ctx, event.Draft{Data: d})
				}
				if ctx.Err() == nil {
					return harness.Result{}, errors.New("the run goes on")
				}
				_ = say(ctx, emit, "later", "text")
				return harness.Result{StopReason: "stop"}, f.Thread.Commit(ctx, harness.Codec{}, 0, nil)
			})
			wantError(t, ends(t, w.start(t, "run-1")), fault.Protocol)
			wantCode(t, last, fault.Protocol)
		})
	}
}

// Nothing comes after the terminal, and nothing after the commit but the terminal.
func TestNothingAfterTheEnd(t *testing.T) {
	w := bound(t)
	late := make(chan harness.Emitter, 1)
	var afterCommit error
	w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
		late <- emit
		if err := f.Thread.Commit(ctx, harness.Codec{}, 0, nil); err != nil {
			return harness.Result{}, err
		}
		afterCommit = emitAll(ctx, emit, event.TextStarted{MessageID: "m"})
		return harness.Result{StopReason: "stop"}, nil
	})
	if got := types(read(t, w.start(t, "run-1"))); got != "run.started run.finished " {
		t.Errorf("events: %s", got)
	}
	wantCode(t, afterCommit, fault.Protocol)
	wantCode(t, emitAll(t.Context(), <-late, event.TextStarted{MessageID: "m"}), fault.Protocol)
}

func TestEmptyDeltaIsDropped(t *testing.T) {
	w := bound(t)
	w.adapter.play(says(""))
	if got := types(read(t, w.start(t, "run-1"))); got != "run.started text.started text.finished run.finished " {
		t.Errorf("events: %s", got)
	}
}

// Several goroutines of a harness emit at once; the sequence has no gap and no
// step back.
func TestEmitAtOnce(t *testing.T) {
	const calls, deltas = 16, 40
	w := bound(t)
	w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
		var wg sync.WaitGroup
		errs := make([]error, calls)
		for n := range calls {
			wg.Go(func() {
				id := fmt.Sprint("m", n)
				errs[n] = emitAll(ctx, emit, event.TextStarted{MessageID: id})
				for range deltas {
					errs[n] = errors.Join(errs[n], emitAll(ctx, emit, event.TextDelta{MessageID: id, Delta: "x"}))
				}
				errs[n] = errors.Join(errs[n], emitAll(ctx, emit, event.TextFinished{MessageID: id}))
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return harness.Result{}, err
		}
		return harness.Result{StopReason: "stop"}, f.Thread.Commit(ctx, harness.Codec{}, 0, nil)
	})
	events := read(t, w.start(t, "run-1"))
	if len(events) != 2+calls*(deltas+2) {
		t.Errorf("%d events", len(events))
	}
}

// A reader that does not read holds the harness back, within bounds of count and
// of bytes, and nothing is lost when the run is then cancelled: the sequence that
// was given last is sent, and the closing events fit.
func TestSlowReader(t *testing.T) {
	for name, size := range map[string]int{"many": 1, "large": event.MaxDeltaBytes} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := bound(t)
				var emitted atomic.Int64
				w.adapter.play(func(ctx context.Context, _ harness.Turn, _ harness.Facades, emit harness.Emitter) (harness.Result, error) {
					if err := emitAll(ctx, emit, event.TextStarted{MessageID: "m"}); err != nil {
						return harness.Result{}, err
					}
					for {
						if err := emitAll(ctx, emit, event.TextDelta{MessageID: "m", Delta: strings.Repeat("x", size)}); err != nil {
							return harness.Result{}, err
						}
						emitted.Add(1)
					}
				})
				r := w.start(t, "run-1")
				synctest.Wait() // the harness is held back
				r.mu.Lock()
				events, bytes := len(r.queue.waiting), r.queue.bytes
				r.mu.Unlock()
				if events > queueEvents || bytes >= queueBytes+event.MaxEventBytes {
					t.Errorf("%d events of %d bytes wait", events, bytes)
				}
				before := emitted.Load()
				if _, err := r.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if emitted.Load() == before {
					t.Error("the harness does not go on when there is room")
				}
				w.Cancel(t.Context(), "run-1", event.CancelledByClient)
				synctest.Wait()
				if w.adapter.running.Load() != 0 {
					t.Fatal("the harness is still held back")
				}
				// What the first Next took is missing from here on, so the sequence is
				// compared with the one after it.
				var last event.Event
				for {
					events, err := r.Next(t.Context())
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range events {
						if last.Data != nil && e.Sequence != last.Sequence+1 {
							t.Fatalf("sequence %d after %d", e.Sequence, last.Sequence)
						}
						last = e
					}
				}
				wantEnd(t, last.Data, cancelled(event.CancelledByClient, event.SideEffectsNone))
			})
		})
	}
}

// A frame is what is there, within its bounds; a larger event travels alone.
func TestFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
			err := emitAll(ctx, emit, event.TextStarted{MessageID: "m"})
			for range 100 {
				err = errors.Join(err, emitAll(ctx, emit, event.TextDelta{MessageID: "m", Delta: "x"}))
			}
			huge := event.Object(`{"text":"` + strings.Repeat("x", event.MaxFrameBytes+1) + `"}`)
			err = errors.Join(err, emitAll(ctx, emit,
				event.TextFinished{MessageID: "m"},
				event.ToolStarted{ToolCallID: "c", ToolName: "fs.write", Arguments: huge},
				event.ToolFinished{ToolCallID: "c", Result: "1"}))
			if err != nil {
				return harness.Result{}, err
			}
			return harness.Result{StopReason: "stop"}, f.Thread.Commit(ctx, harness.Codec{}, 0, nil)
		})
		r := w.start(t, "run-1")
		var sizes []int
		for {
			synctest.Wait()
			events, err := r.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, len(events))
		}
		if got := fmt.Sprint(sizes); got != "[64 39 1 2]" {
			t.Errorf("frames of %s events", got)
		}
	})
}

// Emit ends with the context of its caller as well.
func TestEmitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bound(t)
		ended := make(chan error, 1)
		w.adapter.play(func(ctx context.Context, _ harness.Turn, _ harness.Facades, emit harness.Emitter) (harness.Result, error) {
			own, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			err := emitAll(own, emit, event.TextStarted{MessageID: "m"})
			for err == nil {
				err = emitAll(own, emit, event.TextDelta{MessageID: "m", Delta: "x"})
			}
			ended <- err
			return harness.Result{}, fault.New(fault.ModelFailed, "test")
		})
		began := time.Now()
		r := w.start(t, "run-1")
		wantCode(t, <-ended, fault.DeadlineExceeded)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
		wantError(t, ends(t, r), fault.ModelFailed) // the run itself went on
	})
}

// An adapter that cannot even be named in run.started has a run without a
// terminal: it ends as an error, and nobody can take it for a success.
func TestRunWithoutATerminal(t *testing.T) {
	w := bound(t)
	w.desc.AdapterVersion = "\x00"
	_, err := w.start(t, "run-1").Next(t.Context())
	wantCode(t, err, fault.Protocol)
	w.desc.AdapterVersion = "1"
	_, err = w.Start(t.Context(), envelope("run-1"), turn("run-1", "hi"), fresh)
	wantCode(t, err, fault.StaleLease)
	if w.adapter.streams.Load() != 0 {
		t.Error("the harness ran")
	}
	wantEnd(t, ends(t, w.start(t, "run-2")), event.RunFinished{StopReason: "stop"})
}
