package binding_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	id    = "hs_test"
	owner = "replica/1"
)

// running is a binding with an active run, on a back end seen through on.
func running(t *testing.T, on func(op string) bindingtest.Fate) (*binding.Writer, fence.Grant) {
	t.Helper()
	mem := bindingtest.NewMemory()
	if _, _, err := mem.Insert(t.Context(), binding.Record{ID: id, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	w := binding.NewWriter(mem, time.Now)
	if _, err := w.Replace(t.Context(), id, 1, 0, func(g uint32) string { return binding.ClaimName(id, g) }, ""); err != nil {
		t.Fatal(err)
	}
	_, err := w.Start(t.Context(), binding.StartParams{BindingID: id, RunID: "run_1", Epoch: 1, Deadline: time.Now().Add(time.Hour), Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	g, err := fence.NewGuard(w, time.Now).Admit(t.Context(), fence.Envelope{BindingID: id, Epoch: 1, Generation: 1, RunID: "run_1", Deadline: time.Now().Add(10 * time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	return binding.NewWriter(bindingtest.Tap{To: mem, On: on}, time.Now), g
}

func deliver(string) bindingtest.Fate { return bindingtest.Deliver }

func effect(key string) binding.Effect {
	return binding.Effect{Key: key, Kind: "tool", ArgsDigest: "args"}
}

func wantFault(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Fatalf("want %s, got %v", code, err)
	}
}

func wantRow(t *testing.T, w *binding.Writer, key string, want binding.RowState) {
	t.Helper()
	row, err := w.Backend().LoadRow(t.Context(), binding.RowKey{BindingID: id, Epoch: 1, RunID: "run_1", Key: key})
	if err != nil || row.State != want {
		t.Fatalf("row %q: %+v, %v; want %s", key, row, err, want)
	}
}

func done(context.Context) ([]byte, error) { return []byte("done"), nil }

func TestDispatchWindow(t *testing.T) {
	t.Parallel()
	for slow, begins := range map[time.Duration]bool{
		binding.DispatchWindow - time.Millisecond: true,
		binding.DispatchWindow:                    false,
		time.Minute:                               false,
	} {
		synctest.Test(t, func(t *testing.T) {
			first := true
			w, g := running(t, func(op string) bindingtest.Fate {
				if op == "InsertRow" && first {
					first = false
					time.Sleep(slow) //nolint:forbidigo // in a bubble
				}
				return bindingtest.Deliver
			})
			e := binding.NewEffects(w)
			n := 0
			act := func(ctx context.Context) ([]byte, error) {
				n++
				return done(ctx)
			}
			_, err := e.Do(t.Context(), g, effect("k"), act)
			if begins {
				if err != nil || n != 1 {
					t.Fatalf("after %v: begun %d times, %v", slow, n, err)
				}
				return
			}
			wantFault(t, err, fault.DependencyUnavailable)
			if n != 0 {
				t.Fatalf("after %v the effect began", slow)
			}
			wantRow(t, w, "k", binding.RowNotDispatched)
			if _, err := e.Do(t.Context(), g, effect("k"), act); err != nil || n != 1 {
				t.Fatalf("again: begun %d times, %v", n, err)
			}
		})
	}
}

func TestBeginBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, g := running(t, deliver)
		start := time.Now()
		_, err := binding.NewEffects(w).Do(t.Context(), g, effect("k"), func(ctx context.Context) ([]byte, error) {
			by, ok := binding.BeginBy(ctx)
			if !ok || by.Sub(start) != binding.DispatchWindow {
				t.Errorf("begin by %v, %v", by.Sub(start), ok)
			}
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := binding.BeginBy(t.Context()); ok {
			t.Fatal("a moment outside of an act")
		}
	})
}

func TestActIsBounded(t *testing.T) {
	t.Parallel()
	wait := func(ctx context.Context) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, c := range []struct {
		name  string
		limit time.Duration
		want  time.Duration
	}{{"limit", 3 * time.Second, 3 * time.Second}, {"grant", 0, 10 * time.Minute}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, g := running(t, deliver)
				eff := effect("k")
				eff.Limit = c.limit
				start := time.Now()
				_, err := binding.NewEffects(w).Do(t.Context(), g, eff, wait)
				wantFault(t, err, fault.ToolOutcomeUnknown)
				if d := time.Since(start); d != c.want {
					t.Fatalf("ended after %v, want %v", d, c.want)
				}
				wantRow(t, w, "k", binding.RowDispatched)
			})
		})
	}
}

func TestEndedBeforeTheAct(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, g := running(t, deliver)
	w = binding.NewWriter(afterInsert{w.Backend(), cancel}, time.Now)
	_, err := binding.NewEffects(w).Do(ctx, g, effect("k"), func(context.Context) ([]byte, error) {
		t.Error("begun for nobody")
		return nil, nil
	})
	if !fault.Is(err, fault.Cancelled) {
		t.Fatalf("got %v", err)
	}
	wantRow(t, w, "k", binding.RowNotDispatched)
}

// afterInsert calls then when a row was inserted.
type afterInsert struct {
	binding.Backend
	then func()
}

func (s afterInsert) InsertRow(ctx context.Context, r binding.Row) (binding.Row, error) {
	defer s.then()
	return s.Backend.InsertRow(ctx, r)
}

func TestDuplicateWaits(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]bool{"same process": false, "another process": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, g := running(t, deliver)
				e := binding.NewEffects(w)
				second := e
				if other {
					second = binding.NewEffects(w)
				}
				start := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() {
					_, err := e.Do(t.Context(), g, effect("k"), func(ctx context.Context) ([]byte, error) {
						time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
						return done(ctx)
					})
					if err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				out, err := second.Do(t.Context(), g, effect("k"), func(context.Context) ([]byte, error) { return nil, errors.New("ran twice") })
				wg.Wait()
				if err != nil || !out.Replayed || string(out.Body) != "done" {
					t.Fatalf("%+v, %v", out, err)
				}
				if d := time.Since(start); d > time.Minute+time.Second {
					t.Fatalf("waited %v", d)
				}
			})
		})
	}
}

func TestDuplicateGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, g := running(t, deliver)
		e := binding.NewEffects(w)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := e.Do(t.Context(), g, effect("k"), func(ctx context.Context) ([]byte, error) {
				time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
				return done(ctx)
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		for _, second := range []*binding.Effects{e, binding.NewEffects(w)} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := second.Do(ctx, g, effect("k"), done)
			cancel()
			wantFault(t, err, fault.ToolOutcomeUnknown)
			if fault.From(err, "").SideEffects() != "possible" {
				t.Fatalf("side effects %q", fault.From(err, "").SideEffects())
			}
		}
		wg.Wait()
	})
}

func TestPanicInAct(t *testing.T) {
	t.Parallel()
	w, g := running(t, deliver)
	e := binding.NewEffects(w)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = e.Do(t.Context(), g, effect("k"), func(context.Context) ([]byte, error) { panic("boom") })
	}()
	_, err := e.Do(t.Context(), g, effect("k"), done) // and does not wait for it
	wantFault(t, err, fault.ToolOutcomeUnknown)
}

func TestEffectIsNamed(t *testing.T) {
	t.Parallel()
	w, g := running(t, deliver)
	for _, eff := range []binding.Effect{{}, {Key: "a#1", Kind: "k", ArgsDigest: "d"}, {Key: "k", ArgsDigest: "d"}, {Key: "k", Kind: "k"}} {
		_, err := binding.NewEffects(w).Do(t.Context(), g, eff, done)
		wantFault(t, err, fault.Internal)
	}
	_, err := binding.NewEffects(w).Do(t.Context(), fence.Grant{}, effect("k"), done)
	wantFault(t, err, fault.Internal)
}

// As many Stored effects as come at once are all done, however slow the store is:
// they wait before their window. What stands in the ledger is answered meanwhile, and
// what is not Stored begins.
func TestStoredEffectsWaitBeforeTheirWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, g := running(t, deliver)
		e := binding.NewEffects(w)
		if _, err := e.Do(t.Context(), g, effect("concluded"), done); err != nil {
			t.Fatal(err)
		}
		writer, happened := make(chan struct{}, 1), 0
		write := func(ctx context.Context) ([]byte, error) {
			by, _ := binding.BeginBy(ctx)
			ctx, cancel := context.WithDeadline(ctx, by)
			defer cancel()
			select {
			case writer <- struct{}{}:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			defer func() { <-writer }()
			time.Sleep(binding.DispatchWindow / 5) //nolint:forbidigo // in a bubble
			happened++
			return done(ctx)
		}
		const many = 60
		var wg sync.WaitGroup
		for n := range many {
			wg.Go(func() {
				eff := effect(fmt.Sprint("stored-", n))
				eff.Repeatable, eff.Stored = true, true
				if _, err := e.Do(t.Context(), g, eff, write); err != nil {
					t.Errorf("%s: %v", eff.Key, err)
				}
			})
		}
		synctest.Wait()
		begun := time.Now()
		replay := effect("concluded")
		replay.Stored = true
		if out, err := e.Do(t.Context(), g, replay, done); err != nil || !out.Replayed {
			t.Errorf("a replay: %+v, %v", out, err)
		}
		if _, err := e.Do(t.Context(), g, effect("sent"), done); err != nil {
			t.Error(err)
		}
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("they waited for %v", waited)
		}
		wg.Wait()
		if happened != many {
			t.Errorf("%d happened, want %d", happened, many)
		}
	})
}
