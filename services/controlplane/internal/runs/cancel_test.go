package runs_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/agents/agentstore/agentstoretest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// endless says text until it is stopped.
func endless(said *atomic.Bool) runstest.Script {
	return func(ctx context.Context, p *runstest.Play) error {
		if err := p.Emit(ctx, started(), event.TextStarted{MessageID: "m1"}); err != nil {
			return err
		}
		for {
			if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: "on and on "}); err != nil {
				return err
			}
			said.Store(true)
			select { // as a model speaks, and not until the run has said all that it may
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Millisecond):
			}
		}
	}
}

func TestACancelInMidTextStopsTheHarnessAndSaysSo(t *testing.T) {
	var said atomic.Bool
	s := newStack(t, func(**runstest.Stack) runstest.Script { return endless(&said) }, runstest.Options{})
	r := start(t, s, "hi")
	waittest.Until(t, "there is text", said.Load)
	c, err := s.Runs.Cancel(t.Context(), runstest.Caller(), r.RunID, event.CancelledByClient)
	if err != nil || !c.Cancelled || !c.Confirmed || c.SideEffectStatus != "none" {
		t.Errorf("Cancel = %+v, %v; want cancelled and confirmed without side effects", c, err)
	}
	e := last[event.RunCancelled](t, follow(t, s, r.RunID))
	if e.Reason != event.CancelledByClient {
		t.Errorf("reason = %s", e.Reason)
	}
	again, err := s.Runs.Cancel(t.Context(), runstest.Caller(), r.RunID, event.CancelledByClient)
	if err != nil || again != c {
		t.Errorf("a second cancel = %+v, %v; want the same answer %+v", again, err, c)
	}
	if g := s.Record(t, r.BindingID).Generation; g != 1 {
		t.Errorf("generation = %d; a worker that stopped in time is used again", g)
	}
}

// A cancel was reported before the agent had confirmed; it went on working
// (codeg 364).
func TestAWorkerThatDoesNotStopLosesItsSandbox(t *testing.T) {
	var said atomic.Bool
	s := newStack(t, func(s **runstest.Stack) runstest.Script { return turn(s, "warm") }, runstest.Options{
		Change: func(c *runs.Config) { c.CancelGrace = 4 * time.Second }, // twice that is what the answer waits
	})
	warm := start(t, s, "warm")
	follow(t, s, warm.RunID)
	waittest.Until(t, "concluded", func() bool { return s.Record(t, warm.BindingID).Run == nil })
	stubborn(t, s, warm.BindingID)
	s.Workers.Play(endless(&said))
	r := start(t, s, "hi")
	waittest.Until(t, "there is text", said.Load)
	c, err := s.Runs.Cancel(t.Context(), runstest.Caller(), r.RunID, event.CancelledByClient)
	if err != nil || !c.Cancelled || !c.Confirmed {
		t.Errorf("Cancel = %+v, %v", c, err)
	}
	waittest.Until(t, "the lease is replaced", func() bool { return s.Record(t, r.BindingID).Generation == 2 })
	live, err := s.Provider.List(t.Context())
	if err != nil || len(live) != 0 {
		t.Errorf("%d sandboxes live, %v; want none", len(live), err)
	}
}

func stubborn(t *testing.T, s *runstest.Stack, bindingID string) {
	t.Helper()
	live, err := s.Provider.List(t.Context())
	if err != nil || len(live) != 1 {
		t.Fatalf("%d sandboxes, %v", len(live), err)
	}
	c, err := s.Workers.Dial(live[0])
	if err != nil {
		t.Fatal(err)
	}
	w, ok := c.(*runstest.Worker)
	if !ok {
		t.Fatal("not a scripted worker")
	}
	w.Stubborn = true
	_ = bindingID
}

func TestACancelAfterTheEndChangesNothing(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{})
	r := start(t, s, "hi")
	follow(t, s, r.RunID)
	c, err := s.Runs.Cancel(t.Context(), runstest.Caller(), r.RunID, event.CancelledByClient)
	if err != nil || c.Cancelled || !c.Confirmed {
		t.Errorf("Cancel = %+v, %v; want not cancelled, confirmed", c, err)
	}
}

// A cancel and a finish that race are decided once, and the answer is what was
// decided.
func TestACancelAndAFinishThatRaceAgree(t *testing.T) {
	for range 20 {
		// A cancel that is answered before its run has ended says just that.
		s := newStack(t, say("quick"), runstest.Options{Change: func(c *runs.Config) { c.CancelGrace = time.Hour }})
		r := start(t, s, "hi")
		c, err := s.Runs.Cancel(t.Context(), runstest.Caller(), r.RunID, event.CancelledByClient)
		if err != nil {
			t.Fatal(err)
		}
		events := follow(t, s, r.RunID)
		_, cancelled := events[len(events)-1].Data.(event.RunCancelled)
		if !c.Confirmed || c.Cancelled != cancelled {
			t.Fatalf("Cancel = %+v, but the log ends with %s", c, events[len(events)-1].Type())
		}
	}
}

func TestADeadlineEndsTheRunAlsoWhenNobodyCalls(t *testing.T) {
	var said atomic.Bool
	s := newStack(t, func(**runstest.Stack) runstest.Script { return endless(&said) }, runstest.Options{RunTimeout: 1})
	e := last[event.RunCancelled](t, follow(t, s, start(t, s, "hi").RunID))
	if e.Reason != event.CancelledByDeadline {
		t.Errorf("reason = %s, want deadline", e.Reason)
	}
}

func TestAShutdownCancelsWhatThisReplicaDrives(t *testing.T) {
	var said atomic.Bool
	s := runstest.Make(t, endless(&said), runstest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Runs.Run(ctx) }()
	r := start(t, s, "hi")
	waittest.Until(t, "there is text", said.Load)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	e := last[event.RunCancelled](t, follow(t, s, r.RunID))
	if e.Reason != event.CancelledByShutdown {
		t.Errorf("reason = %s, want shutdown", e.Reason)
	}
}

// A watcher that lagged was killed with no cursor to go on from (OpenShell
// 3055): only the reader that may not fall behind is ended, and only then.
func TestAReaderThatMayNotFallBehindIsTold(t *testing.T) {
	var said atomic.Bool
	s := newStack(t, func(**runstest.Stack) runstest.Script { return endless(&said) }, runstest.Options{})
	r := start(t, s, "hi")
	waittest.Until(t, "there is text", said.Load)
	seen := 0
	err := s.Runs.Follow(t.Context(), runstest.Caller(), r.RunID, runs.FollowOptions{MaxBehind: 64}, func(uint64, json.RawMessage) error {
		seen++
		injectDelay(t)
		return nil
	})
	if !errors.Is(err, runs.ErrBehind) {
		t.Errorf("err = %v after %d events, want ErrBehind", err, seen)
	}
	if _, err := s.Runs.Cancel(t.Context(), runstest.Caller(), r.RunID, event.CancelledByDisconnect); err != nil {
		t.Error(err)
	}
	last[event.RunCancelled](t, follow(t, s, r.RunID))
}

// The bound holds also for a reader that takes nothing at all.
func TestAReaderThatIsStuckIsInterrupted(t *testing.T) {
	var said atomic.Bool
	s := newStack(t, func(**runstest.Stack) runstest.Script { return endless(&said) }, runstest.Options{})
	r := start(t, s, "hi")
	stuck := make(chan struct{})
	interrupts := 0
	o := runs.FollowOptions{MaxBehind: 4 << 10, Interrupt: func() { interrupts++; close(stuck) }}
	seen := 0
	err := s.Runs.Follow(t.Context(), runstest.Caller(), r.RunID, o, func(uint64, json.RawMessage) error {
		seen++
		<-stuck
		return errors.New("the connection was cut")
	})
	if !errors.Is(err, runs.ErrBehind) || seen != 1 || interrupts != 1 {
		t.Errorf("err = %v after %d events and %d interrupts, want ErrBehind", err, seen, interrupts)
	}
	if _, err := s.Runs.Cancel(t.Context(), runstest.Caller(), r.RunID, event.CancelledByDisconnect); err != nil {
		t.Error(err)
	}
	last[event.RunCancelled](t, follow(t, s, r.RunID))
}

// It holds on a replica as well that does not drive the run, where nothing but the
// record tells how much there is to take.
func TestAReaderThatIsStuckElsewhereIsInterrupted(t *testing.T) {
	var said atomic.Bool
	store, agents := bindingtest.NewMemory(), &agentstoretest.Memory{}
	// A replica that is slow to beat is not to be taken for gone.
	patient := func(c *runs.Config) { c.TakeOverAfter = 10 * patience }
	s := newStack(t, func(**runstest.Stack) runstest.Script { return endless(&said) }, runstest.Options{Backend: store, Agents: agents, Owner: "cp-1", Change: patient})
	other := runstest.New(t, nil, runstest.Options{Backend: store, Agents: agents, Owner: "cp-2", Beside: s, Change: patient})
	r := start(t, s, "hi")
	waittest.Until(t, "there is text", said.Load)
	stuck := make(chan struct{})
	o := runs.FollowOptions{MaxBehind: 16 << 10, Interrupt: func() { close(stuck) }}
	err := other.Runs.Follow(t.Context(), runstest.Caller(), r.RunID, o, func(uint64, json.RawMessage) error {
		select {
		case <-stuck:
			return errors.New("the connection was cut")
		case <-time.After(patience):
			return errors.New("nobody cut the connection")
		}
	})
	if !errors.Is(err, runs.ErrBehind) {
		t.Errorf("err = %v, want ErrBehind", err)
	}
	if _, err := other.Runs.Cancel(t.Context(), runstest.Caller(), r.RunID, event.CancelledByDisconnect); err != nil {
		t.Error(err)
	}
	last[event.RunCancelled](t, follow(t, s, r.RunID))
}

func TestCancelOfAnUnknownRun(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{})
	if _, err := s.Runs.Cancel(t.Context(), runstest.Caller(), "run_unknown", event.CancelledByClient); !fault.Is(err, fault.NotFound) {
		t.Errorf("err = %v, want not_found", err)
	}
}
