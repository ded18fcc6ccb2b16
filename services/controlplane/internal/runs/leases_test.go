package runs_test

import (
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// often makes the looks at sandboxes frequent, and their idle time longer than any
// test.
func often(c *runs.Config) { c.IdleAfter, c.TendEvery = time.Hour, 20*time.Millisecond }

// rested runs a turn and waits until the binding is at rest.
func rested(t *testing.T, s *runstest.Stack) binding.Record {
	t.Helper()
	r := start(t, s, "hi")
	last[event.RunFinished](t, follow(t, s, r.RunID))
	waittest.Until(t, "the binding is at rest", func() bool {
		rec := s.Record(t, r.BindingID)
		return rec.Run == nil && len(rec.Ending) == 0
	})
	return s.Record(t, r.BindingID)
}

// A sandbox whose time is over is replaced while nobody needs it, and the
// conversation goes on from its head in another one.
func TestALeaseThatExpiresIsRestoredByTheNextTurn(t *testing.T) {
	t.Parallel()
	s := newStack(t, say("hello"), runstest.Options{Change: often})
	before := rested(t, s)
	s.Provider.Exceed(before.Lease.ClaimName, sandbox.LimitLifetime)
	waittest.Until(t, "the lease is replaced", func() bool {
		rec := s.Record(t, before.ID)
		return rec.Generation == before.Generation+1 && len(rec.Ending) == 0 && rec.Lease.InstanceUID == ""
	})
	f := last[event.RunFinished](t, follow(t, s, start(t, s, "again").RunID))
	if *f.ThreadState.DurableRevision != before.Head.Revision+1 || s.Provider.Made() != 2 {
		t.Errorf("revision %d after %d, %d sandboxes", *f.ThreadState.DurableRevision, before.Head.Revision, s.Provider.Made())
	}
}

// A binding whose sandbox vanished without a word (a host that was killed, an exit
// that was told while nobody listened) is seen to.
func TestABindingWithoutItsSandboxIsReplaced(t *testing.T) {
	t.Parallel()
	s := newStack(t, say("hello"), runstest.Options{Change: often})
	before := rested(t, s)
	s.Provider.Vanish(before.Lease.ClaimName)
	waittest.Until(t, "the lease is replaced", func() bool {
		rec := s.Record(t, before.ID)
		return rec.Generation == before.Generation+1 && len(rec.Ending) == 0
	})
	last[event.RunFinished](t, follow(t, s, start(t, s, "again").RunID))
}

// A sandbox that no binding knows is released; one that somebody else made, under a
// name that is none of ours, and one that is in use, are left alone.
func TestASandboxWithoutABindingIsReleased(t *testing.T) {
	t.Parallel()
	s := newStack(t, say("hello"), runstest.Options{Change: often})
	used := rested(t, s)
	claim := func(name string) sandbox.Instance {
		in, err := s.Provider.Claim(t.Context(), sandbox.Claim{Name: name, Profile: "default", Harness: "native"})
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	alive := func(in sandbox.Instance) bool {
		yes, err := s.Provider.Alive(t.Context(), in.ClaimName, in.UID)
		if err != nil {
			t.Fatal(err)
		}
		return yes
	}
	orphan, strange := claim(binding.ClaimName("hs_of_nobody", 7)), claim("somebody-elses")
	waittest.Until(t, "the orphan is released", func() bool { return !alive(orphan) })
	second := claim(binding.ClaimName("hs_of_nobody", 8))
	waittest.Until(t, "the next one as well", func() bool { return !alive(second) }) // a whole look later
	if !alive(strange) {
		t.Error("what somebody else made was ended")
	}
	if rec := s.Record(t, used.ID); rec.Generation != used.Generation || !alive(sandbox.Instance{ClaimName: rec.Lease.ClaimName, UID: rec.Lease.InstanceUID}) {
		t.Errorf("the sandbox of a binding was touched: %+v", rec.Lease)
	}
}

// While the records cannot all be read nothing is taken for an orphan.
func TestNoOrphanIsSeenInHalfTheRecords(t *testing.T) {
	t.Parallel()
	store := bindingtest.NewMemory()
	s := newStack(t, say("hello"), runstest.Options{Backend: bindingtest.Tap{To: store, On: func(op string) bindingtest.Fate {
		if op == "List" {
			return bindingtest.LoseRequest
		}
		return bindingtest.Deliver
	}}, Change: often})
	in, err := s.Provider.Claim(t.Context(), sandbox.Claim{Name: binding.ClaimName("hs_1", 1), Profile: "default", Harness: "native"})
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "some looks", func() bool { return s.Provider.Lists() > 3 })
	if alive, err := s.Provider.Alive(t.Context(), in.ClaimName, in.UID); err != nil || !alive {
		t.Errorf("released on the strength of no records: %v, %v", alive, err)
	}
}
