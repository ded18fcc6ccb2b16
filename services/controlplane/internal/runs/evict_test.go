package runs_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// kill ends the sandbox of the play, as SIGKILL would.
func kill(ctx context.Context, s *runstest.Stack, p *runstest.Play) error {
	return exceed(ctx, s, p, "")
}

// exceed ends the sandbox of the play because of a limit.
func exceed(ctx context.Context, s *runstest.Stack, p *runstest.Play, limit sandbox.Limit) error {
	rec, err := s.Writer.Backend().Load(ctx, p.Turn.Envelope.BindingID)
	if err != nil {
		return err
	}
	s.Provider.Exceed(rec.Lease.ClaimName, limit)
	return context.Canceled
}

func TestASandboxThatDiesInTextEndsTheRunAsEvicted(t *testing.T) {
	s := newStack(t, func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			if err := p.Emit(ctx, started(), event.TextStarted{MessageID: "m1"}, event.TextDelta{MessageID: "m1", Delta: "half a"}); err != nil {
				return err
			}
			if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: " sentence"}); err != nil { // the first frame is committed
				return err
			}
			return kill(ctx, *s, p)
		}
	}, runstest.Options{})
	r := start(t, s, "hi")
	events := follow(t, s, r.RunID)
	e := last[event.RunError](t, events)
	if e.Code != string(fault.SandboxEvicted) {
		t.Errorf("code = %s, want sandbox_evicted", e.Code)
	}
	s.Workers.Play(turn(&s, "back again"))
	next := start(t, s, "again")
	last[event.RunFinished](t, follow(t, s, next.RunID))
	if g := s.Record(t, r.BindingID).Generation; g != 2 {
		t.Errorf("generation = %d, want 2", g)
	}
}

// A limit that ended the sandbox ended the run: whoever reads it knows what to ask
// for, and that the next run will meet the same limit.
func TestALimitOfTheSandboxEndsTheRunAsOne(t *testing.T) {
	for _, limit := range []sandbox.Limit{sandbox.LimitMemory, sandbox.LimitPIDs, sandbox.LimitCPU, sandbox.LimitStorage, sandbox.LimitLifetime} {
		s := newStack(t, func(s **runstest.Stack) runstest.Script {
			return func(ctx context.Context, p *runstest.Play) error {
				if err := p.Emit(ctx, started(), event.TextStarted{MessageID: "m1"}, event.TextDelta{MessageID: "m1", Delta: "half a"}); err != nil {
					return err
				}
				if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: " sentence"}); err != nil { // the first frame is committed
					return err
				}
				return exceed(ctx, *s, p, limit)
			}
		}, runstest.Options{})
		e := last[event.RunError](t, follow(t, s, start(t, s, "hi").RunID))
		if e.Code != string(fault.SandboxLimit) {
			t.Errorf("%s: code = %s, want sandbox_limit", limit, e.Code)
		}
	}
}

// tardy is a provider that knows of an end only some time after the worker's stream broke,
// as a cluster does.
type tardy struct {
	sandbox.Provider

	late time.Duration
	told chan sandbox.Exit

	mu   sync.Mutex
	gone map[string]time.Time
}

func (p *tardy) Exits() <-chan sandbox.Exit { return p.told }

// tell passes on what the provider tells, late.
func (p *tardy) tell() {
	defer close(p.told)
	for e := range p.Provider.Exits() {
		time.Sleep(p.late) //nolint:forbidigo // that is what it is for
		p.told <- e
	}
}

func (p *tardy) Alive(ctx context.Context, claim, uid string) (bool, error) {
	alive, err := p.Provider.Alive(ctx, claim, uid)
	if err != nil || alive {
		return alive, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.gone[uid]; !known {
		p.gone[uid] = time.Now()
	}
	return time.Since(p.gone[uid]) < p.late, nil
}

// A node tells the cluster of a container that has ended a while after its connections broke.
// That the worker was lost is said all the same, and why.
func TestALimitThatIsToldLate(t *testing.T) {
	s := newStack(t, func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			if err := p.Emit(ctx, started(), event.TextStarted{MessageID: "m1"}, event.TextDelta{MessageID: "m1", Delta: "half a"}); err != nil {
				return err
			}
			if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: " sentence"}); err != nil { // the first frame is committed
				return err
			}
			return exceed(ctx, *s, p, sandbox.LimitMemory)
		}
	}, runstest.Options{Change: func(c *runs.Config) {
		p := &tardy{Provider: c.Provider, late: 2 * runs.DefaultExitPatience, told: make(chan sandbox.Exit, 16), gone: map[string]time.Time{}}
		go p.tell()
		c.Provider, c.ExitPatience = p, time.Minute
	}})
	e := last[event.RunError](t, follow(t, s, start(t, s, "hi").RunID))
	if e.Code != string(fault.SandboxLimit) {
		t.Errorf("code = %s, want sandbox_limit", e.Code)
	}
}

func TestASandboxThatDiesAfterTheCommitHasFinished(t *testing.T) {
	s := newStack(t, func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			if err := p.Emit(ctx, started()); err != nil {
				return err
			}
			if err := (*s).Commit(ctx, p, "ref"); err != nil {
				return err
			}
			return kill(ctx, *s, p)
		}
	}, runstest.Options{})
	f := last[event.RunFinished](t, follow(t, s, start(t, s, "hi").RunID))
	if f.ThreadState.Durability != event.DurabilityCommitted {
		t.Errorf("thread_state = %+v, want committed", f.ThreadState)
	}
}

func TestAnIdleSandboxThatDiesIsReplacedByItself(t *testing.T) {
	s := newStack(t, say("hello"), runstest.Options{})
	r := start(t, s, "hi")
	follow(t, s, r.RunID)
	waittest.Until(t, "the run is concluded", func() bool { return s.Record(t, r.BindingID).Run == nil })
	s.Provider.Kill(s.Record(t, r.BindingID).Lease.ClaimName)
	waittest.Until(t, "the generation has risen", func() bool { return s.Record(t, r.BindingID).Generation == 2 })
	waittest.Until(t, "the old lease is dropped", func() bool { return len(s.Record(t, r.BindingID).Ending) == 0 })
	f := last[event.RunFinished](t, follow(t, s, start(t, s, "two").RunID))
	if *f.ThreadState.DurableRevision != 2 {
		t.Errorf("revision = %d, want 2", *f.ThreadState.DurableRevision)
	}
}

func TestARunThatHasDoneNothingIsCarriedToTheNextSandbox(t *testing.T) {
	s := newStack(t, func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error { return turn(s, "hello")(ctx, p) }
	}, runstest.Options{})
	// The first sandbox is gone before it is asked whether it is ready.
	s.Provider.Refuse(nil)
	warm := start(t, s, "warm")
	follow(t, s, warm.RunID)
	waittest.Until(t, "concluded", func() bool { return s.Record(t, warm.BindingID).Run == nil })
	rec := s.Record(t, warm.BindingID)
	{
		s.Workers.Gone(rec.Lease.InstanceUID) // the worker is deaf; its provider does not know
	}
	r := start(t, s, "hi")
	last[event.RunFinished](t, follow(t, s, r.RunID))
	if g := s.Record(t, r.BindingID).Generation; g != 2 {
		t.Errorf("generation = %d, want 2: the run must have been carried over", g)
	}
}

func TestARunWithoutAnOwnerIsTakenOver(t *testing.T) {
	s := runstest.Make(t, nil, runstest.Options{Owner: "cp-new"})
	s.Workers.Play(turn(&s, "hello"))
	r := orphan(t, s, "cp-dead")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Runs.Run(ctx) }()
	events := follow(t, s, r.ID)
	if e := last[event.RunError](t, events); e.Code != string(fault.ControlPlaneLost) {
		t.Errorf("code = %s, want control_plane_lost", e.Code)
	}
	last[event.RunFinished](t, follow(t, s, start(t, s, "next").RunID))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A leader that had lost its lease still acted (cilium 42920): a run whose owner
// beats is left alone.
func TestARunWhoseOwnerBeatsIsLeftAlone(t *testing.T) {
	// By the clock of the replica less than an interval is between two beats, however
	// slow the machine is.
	var passed atomic.Int64
	begun := time.Now()
	s := runstest.Make(t, nil, runstest.Options{Owner: "cp-new", Now: func() time.Time { return begun.Add(time.Duration(passed.Load())) }})
	run := orphan(t, s, "cp-alive")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Runs.Run(ctx) }()
	id := bindingOf(t, s, run.ID)
	for range 30 {
		passed.Add(int64(40 * time.Millisecond)) // of 100
		rec := s.Record(t, id)
		g, err := s.Guard.Admit(t.Context(), envelope(rec))
		if err != nil {
			t.Fatalf("the run was taken over: %v", err)
		}
		if err := s.Writer.Beat(t.Context(), g, "cp-alive"); err != nil {
			t.Fatalf("the owner cannot beat: %v", err)
		}
		injectDelay(t)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// injectDelay makes a store, a reader or an owner slow by about one sweep of the
// reconciler. Nothing is waited for with it.
func injectDelay(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
}

func envelope(rec binding.Record) fence.Envelope {
	return fence.Envelope{
		BindingID: rec.ID, Epoch: rec.Epoch, Generation: rec.Generation, RunID: rec.Run.ID,
		RequestID: "r", IdempotencyKey: "k", Deadline: rec.Run.Deadline,
	}
}

func bindingOf(t *testing.T, s *runstest.Stack, runID string) string {
	t.Helper()
	id, err := s.Writer.Backend().FindRun(t.Context(), runID)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// orphan commits a run that another replica started and does not drive.
func orphan(t *testing.T, s *runstest.Stack, owner string) binding.Run {
	t.Helper()
	return *orphanIn(t, s, "c1", "run_orphan", owner).Run
}

// orphanIn does so in a conversation, and returns its record.
func orphanIn(t *testing.T, s *runstest.Stack, conversation, runID, owner string) binding.Record {
	t.Helper()
	ids, err := binding.NewIDs([]byte("kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"))
	if err != nil {
		t.Fatal(err)
	}
	id := binding.Identity{
		Environment: "test", Subject: "user-1", Organization: "default", AgentID: "demo", AgentVersion: 1,
		ConversationID: conversation, HarnessID: "native", AdapterVersion: "1.0.0", ContractVersion: 1,
	}
	rec, _, err := s.Writer.Backend().Insert(t.Context(), binding.Record{ID: ids.BindingID(id), Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	if rec, err = s.Writer.Replace(t.Context(), rec.ID, 0, 0, func(g uint32) string { return binding.ClaimName(rec.ID, g) }, "default"); err != nil {
		t.Fatal(err)
	}
	st, err := s.Writer.Start(t.Context(), binding.StartParams{
		BindingID: rec.ID, RunID: runID, RequestID: "req", KeyDigest: "k", ContentDigest: "c",
		Deadline: time.Now().Add(time.Hour).UTC(), Owner: owner,
	})
	if err != nil {
		t.Fatal(err)
	}
	return st.Record
}

// A worker may tell of its own that a part of its sandbox is gone, such as the world of
// its program. It is not used again, although it is still there.
func TestASandboxThatLostAPartIsNotUsedAgain(t *testing.T) {
	s := newStack(t, func(**runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			code := fault.SandboxEvicted
			return p.Emit(ctx, started(), event.RunError{Code: string(code), Message: code.Message(), SideEffectStatus: event.SideEffectsPossible})
		}
	}, runstest.Options{})
	r := start(t, s, "hi")
	e := last[event.RunError](t, follow(t, s, r.RunID))
	// What the worker says of side effects is not believed: the ledger has none.
	if e.Code != string(fault.SandboxEvicted) || e.Retryable || e.SideEffectStatus != event.SideEffectsNone {
		t.Errorf("ended as %+v", e)
	}
	s.Workers.Play(turn(&s, "back again"))
	last[event.RunFinished](t, follow(t, s, start(t, s, "again").RunID))
	if rec := s.Record(t, r.BindingID); rec.Generation != 2 || s.Provider.Made() != 2 {
		t.Errorf("generation %d, %d sandboxes", rec.Generation, s.Provider.Made())
	}
}
