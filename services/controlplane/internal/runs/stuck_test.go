package runs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// stuck is a provider whose answers do not come, but for what it may release.
type stuck struct {
	sandbox.Provider

	mu sync.Mutex
	// deaf says that it answers no question either.
	deaf     bool
	free     map[string]bool
	thawed   chan struct{}
	released map[string]time.Time
	asked    map[string]int
	at, most int
}

func newStuck() *stuck {
	return &stuck{free: map[string]bool{}, thawed: make(chan struct{}), released: map[string]time.Time{}, asked: map[string]int{}}
}

// in makes it the provider of a stack, which has the times of a real one.
func (p *stuck) in(c *runs.Config) {
	p.Provider, c.Provider = c.Provider, p
	c.BeatEvery, c.TakeOverAfter, c.CancelGrace = runs.DefaultBeatEvery, runs.DefaultTakeOverAfter, runs.DefaultCancelGrace
	c.ReconcileEvery, c.TendEvery = runs.DefaultReconcile, runs.DefaultTendEvery
}

// thaw lets it answer from now on.
func (p *stuck) thaw() { close(p.thawed) }

// hang waits until it answers again.
func (p *stuck) hang(ctx context.Context) error {
	select {
	case <-p.thawed:
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err(), "stuck")
	}
}

func (p *stuck) Release(ctx context.Context, claim string) error {
	p.mu.Lock()
	p.asked[claim]++
	p.at++
	p.most = max(p.most, p.at)
	free := p.free[claim]
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.at--
	}()
	if !free {
		if err := p.hang(ctx); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.released[claim] = time.Now()
	p.mu.Unlock()
	return p.Provider.Release(ctx, claim)
}

func (p *stuck) List(ctx context.Context) ([]sandbox.Instance, error) {
	if p.deaf {
		if err := p.hang(ctx); err != nil {
			return nil, err
		}
	}
	return p.Provider.List(ctx)
}

// running runs the service of a stack, and stops it within no time.
func running(t *testing.T, s *runstest.Stack) (stop func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Runs.Run(ctx) }()
	return func() {
		t.Helper()
		at := time.Now()
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(at); took != 0 {
			t.Errorf("the stop took %v", took)
		}
		if err := s.Provider.Close(); err != nil {
			t.Error(err)
		}
	}
}

// passes lets time pass in a bubble.
func passes(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the clock of a synctest bubble
	synctest.Wait()
}

// comes is how long it takes until ok holds, which is looked at each second.
func comes(t *testing.T, within time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	for {
		synctest.Wait()
		took := time.Since(begun)
		switch {
		case ok():
			return took
		case took >= within:
			t.Errorf("after %v: not %s", took, what)
			return took
		}
		passes(time.Second)
	}
}

func concluded(t *testing.T, s *runstest.Stack, runID string) bool {
	t.Helper()
	_, err := s.Writer.Backend().LoadRun(t.Context(), runID)
	if err != nil && !errors.Is(err, binding.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// leftCancelled is a run that was cancelled and left service, and whose sandbox has not
// ended.
func leftCancelled(t *testing.T, s *runstest.Stack, conversation, runID string) binding.Record {
	t.Helper()
	rec := orphanIn(t, s, conversation, runID, "cp-dead")
	g, err := s.Guard.Admit(t.Context(), envelope(rec))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Writer.SetEnd(t.Context(), g, binding.End{Kind: binding.EndCancelling, Reason: string(event.CancelledByClient)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Writer.TakeOver(t.Context(), rec.ID, runID, "cp-dead", rec.Run.OwnerBeat); err != nil {
		t.Fatal(err)
	}
	return rec
}

// A node that is lost keeps its sandboxes for ever: runs that wait for them hold up
// nothing else, and are not said to be cancelled before.
func TestAProviderThatHangsHoldsUpNoSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newStuck()
		p.deaf = true
		s := runstest.Make(t, nil, runstest.Options{Owner: "cp-new", Change: p.in})
		waits := map[string]binding.Record{}
		for i := range 3 {
			id := fmt.Sprintf("run_cancelled_%d", i)
			waits[id] = leftCancelled(t, s, fmt.Sprintf("cancelled-%d", i), id)
		}
		lost := orphanIn(t, s, "lost", "run_lost", "cp-dead")
		stop := running(t, s)
		bound := runs.DefaultTakeOverAfter + 2*runs.DefaultReconcile
		comes(t, bound, "taken over", func() bool { return concluded(t, s, lost.Run.ID) })
		if e := last[event.RunError](t, followIn(t, s, "lost", lost.Run.ID)); e.Code != string(fault.ControlPlaneLost) {
			t.Errorf("code = %s, want control_plane_lost", e.Code)
		}
		for range 20 { // and so it stays, while the releases time out
			passes(30 * time.Second)
			for id := range waits {
				if concluded(t, s, id) {
					t.Fatalf("%s is cancelled, and its sandbox goes on", id)
				}
			}
		}
		later := orphanIn(t, s, "later", "run_later", "cp-dead")
		comes(t, bound, "taken over later", func() bool { return concluded(t, s, later.Run.ID) })
		p.thaw()
		for id, before := range waits {
			comes(t, 2*time.Minute, "cancelled once its sandbox has ended", func() bool { return concluded(t, s, id) })
			events := followIn(t, s, before.Identity.ConversationID, id)
			if e := last[event.RunCancelled](t, events); e.Reason != event.CancelledByClient || terminals(events) != 1 {
				t.Errorf("%s ends %d times, as %+v", id, terminals(events), e)
			}
			if now := s.Record(t, before.ID); now.Generation != before.Generation+1 || len(now.Ending) > 0 {
				t.Errorf("%s leaves generation %d and %+v", id, now.Generation, now.Ending)
			}
		}
		stop()
	})
}

func terminals(events []event.Event) (n int) {
	for _, e := range events {
		switch e.Data.(type) {
		case event.RunFinished, event.RunInterrupted, event.RunCancelled, event.RunError:
			n++
		}
	}
	return n
}

// A service that stops waits for no provider: another replica goes on.
func TestAStopWaitsForNoProviderThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newStuck()
		p.deaf = true
		s := runstest.Make(t, nil, runstest.Options{Owner: "cp-new", Change: p.in})
		rec := leftCancelled(t, s, "cancelled", "run_cancelled")
		stop := running(t, s)
		passes(runs.DefaultTendEvery + 2*time.Second) // it hangs in both questions
		stop()
		if concluded(t, s, "run_cancelled") || s.Record(t, rec.ID).EndingRun() == nil {
			t.Error("the run is concluded, and its sandbox goes on")
		}
	})
}

// leaving is a binding with a claim that is to be released.
func leaving(t *testing.T, s *runstest.Stack, id string) (claim string) {
	t.Helper()
	if _, _, err := s.Writer.Backend().Insert(t.Context(), binding.Record{ID: id}); err != nil {
		t.Fatal(err)
	}
	name := func(g uint32) string { return binding.ClaimName(id, g) }
	for g := range uint32(2) {
		if _, err := s.Writer.Replace(t.Context(), id, 0, g, name, "default"); err != nil {
			t.Fatal(err)
		}
	}
	return name(1)
}

// Claims that cannot be released, however many and wherever in the order, keep no other
// from being released. They are tried ever more seldom, and not forgotten.
func TestClaimsThatAreStuckKeepNoOtherFromBeingReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lost, well = 40, 5
		p := newStuck()
		s := runstest.Make(t, nil, runstest.Options{Change: p.in})
		var hang, free []string
		for i := range lost {
			hang = append(hang, leaving(t, s, fmt.Sprintf("hs_1_%02d", i)))
		}
		for i := range well {
			free = append(free, leaving(t, s, fmt.Sprintf("hs_2_%02d", i)))
			p.free[free[i]] = true
		}
		stop := running(t, s)
		gone := func(claims ...string) func() bool {
			return func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				for _, c := range claims {
					if p.released[c].IsZero() {
						return false
					}
				}
				return true
			}
		}
		// At least eight claims at once are such that did not fail yet.
		const timeout = 2 * runs.DefaultCancelGrace
		comes(t, (lost+well)/8*timeout+2*runs.DefaultReconcile, "released", gone(free...))
		for i := range 10 { // and one that is to go while all others are stuck goes at once
			passes(7 * time.Second)
			id := fmt.Sprintf("hs_3_%02d", i)
			p.mu.Lock()
			p.free[binding.ClaimName(id, 1)] = true
			p.mu.Unlock()
			comes(t, 2*runs.DefaultReconcile, "released at once", gone(leaving(t, s, id)))
		}
		passes(10 * time.Minute)
		p.mu.Lock()
		before := p.asked[hang[0]]
		p.mu.Unlock()
		passes(10 * time.Minute)
		p.mu.Lock()
		for _, c := range hang {
			// Seldom: a time-out, a minute or a little more, and what it waits for a place.
			if n := p.asked[c]; c == hang[0] && (n-before < 4 || n-before > 10) || n < 10 {
				t.Errorf("%s was tried %d times, %d before", c, n, before)
			}
		}
		if p.most > 16 {
			t.Errorf("%d at once", p.most)
		}
		p.mu.Unlock()
		p.thaw()
		comes(t, 2*time.Minute, "released in the end", gone(hang...))
		passes(2 * runs.DefaultReconcile)
		busy, err := s.Writer.Backend().List(t.Context(), "", 100, true)
		if err != nil || len(busy) > 0 {
			t.Errorf("%d records have something left, %v", len(busy), err)
		}
		stop()
	})
}
