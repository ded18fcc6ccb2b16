package facadeclient

import (
	"bytes"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
)

func TestThread(t *testing.T) {
	c := newClient(t)
	head, err := c.Thread.Load(t.Context(), testCodec)
	must(t, err)
	if head.Revision != 0 || len(head.Payload) != 0 {
		t.Errorf("a new thread has %+v", head)
	}
	must(t, c.Thread.Commit(t.Context(), testCodec, 0, []byte("state")))
	if !c.point.covered || !c.point.committed {
		t.Errorf("the run knows %+v", c.point)
	}
	r := c.stand.Record(t)
	if r.Head.Revision != 1 || r.Head.Codec != "test" || r.Run.End.Kind != binding.EndSuccess {
		t.Errorf("the record has %+v, end %+v", r.Head, r.Run.End)
	}
}

func TestLoad(t *testing.T) {
	c := newClient(t)
	must(t, c.Thread.Commit(t.Context(), testCodec, 0, []byte("state")))
	once := first(1)
	c.arm(func(b *brokers) {
		b.lose = func(p string) bool { return once(p, threadstatev1connect.ThreadStateServiceLoadHeadProcedure) }
	})
	head, err := c.Thread.Load(t.Context(), testCodec)
	must(t, err)
	if head.Revision != 1 || string(head.Payload) != "state" {
		t.Errorf("got %+v", head)
	}
	c.arm(func(b *brokers) {
		for ref := range b.snapshots {
			b.snapshots[ref] = []byte("other")
		}
	})
	_, err = c.Thread.Load(t.Context(), testCodec)
	wantCode(t, err, fault.PersistenceFailed)
}

// State of many parts travels whole, in both directions, and may be asked for
// again where an answer was lost in the middle.
func TestLargeState(t *testing.T) {
	c := newClient(t)
	payload := bytes.Repeat([]byte("state of a turn "), 20<<16)
	twice := first(2)
	c.arm(func(b *brokers) {
		b.lose = func(p string) bool {
			return twice(p, threadstatev1connect.ThreadStateServiceWriteSnapshotProcedure) || twice(p, threadstatev1connect.ThreadStateServiceLoadHeadProcedure)
		}
	})
	must(t, c.Thread.Commit(t.Context(), testCodec, 0, payload))
	head, err := c.Thread.Load(t.Context(), testCodec)
	must(t, err)
	if head.Revision != 1 || !bytes.Equal(head.Payload, payload) {
		t.Errorf("revision %d with %d bytes", head.Revision, len(head.Payload))
	}
	wantCode(t, c.Thread.Commit(t.Context(), testCodec, 1, make([]byte, 64<<20+1)), fault.StateTooLarge)
}

// A commit whose answers are lost happens once, and is known to have happened.
func TestCommitLosesItsAnswer(t *testing.T) {
	for _, procedure := range []string{
		threadstatev1connect.ThreadStateServiceWriteSnapshotProcedure, threadstatev1connect.ThreadStateServiceCommitHeadProcedure,
	} {
		t.Run(procedure, func(t *testing.T) {
			c := newClient(t)
			twice := first(2)
			c.arm(func(b *brokers) { b.lose = func(p string) bool { return twice(p, procedure) } })
			must(t, c.Thread.Commit(t.Context(), testCodec, 0, []byte("state")))
			if r := c.stand.Record(t); r.Head.Revision != 1 || !c.point.committed {
				t.Errorf("revision %d, committed: %v", r.Head.Revision, c.point.committed)
			}
		})
	}
}

// A cancel that was decided first: the head moves, and the run has not succeeded.
func TestCommitAfterACancelWasDecided(t *testing.T) {
	c := newClient(t)
	_, err := c.stand.Writer.SetEnd(t.Context(), c.stand.Grant(t, c.stand.Envelope()), binding.End{Kind: binding.EndCancelling, Reason: "client_request"})
	must(t, err)
	wantCode(t, c.Thread.Commit(t.Context(), testCodec, 0, []byte("state")), fault.Cancelled)
	if r := c.stand.Record(t); r.Head.Revision != 1 || c.point.committed || !c.point.moved {
		t.Errorf("revision %d, the run knows %+v", r.Head.Revision, c.point)
	}
}

func TestCommitIsRefused(t *testing.T) {
	t.Run("another revision", func(t *testing.T) {
		c := newClient(t)
		wantCode(t, c.Thread.Commit(t.Context(), testCodec, 7, []byte("state")), fault.RevisionConflict)
		if c.point.committed {
			t.Error("it says that it committed")
		}
	})
	t.Run("the run is broken", func(t *testing.T) {
		c := newClient(t)
		c.point.err = fault.New(fault.Protocol, "test")
		wantCode(t, c.Thread.Commit(t.Context(), testCodec, 0, []byte("state")), fault.Protocol)
		if c.count("CommitHead") != 0 {
			t.Error("it was committed all the same")
		}
	})
}

// An outcome that stays unknown ends the run as such: what was sent cannot happen
// any more, or it is found to have happened.
func TestCommitStaysUnknown(t *testing.T) {
	lost := func(p string) bool { return p == threadstatev1connect.ThreadStateServiceCommitHeadProcedure }
	t.Run("and had happened", func(t *testing.T) {
		c := newClient(t)
		c.arm(func(b *brokers) { b.lose = lost })
		must(t, c.Thread.Commit(t.Context(), testCodec, 0, []byte("state")))
		if r := c.stand.Record(t); r.Run.End.Kind != binding.EndSuccess || !c.point.committed {
			t.Errorf("end %+v, committed: %v", r.Run.End, c.point.committed)
		}
	})
	for name, code := range map[string]fault.Code{"and had not": fault.Internal, "as the facade says": fault.ThreadDurabilityUncertain} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			c.arm(func(b *brokers) {
				b.refuse = func(p string) error {
					if p == "CommitHead" {
						return fault.New(code, "test")
					}
					return nil
				}
			})
			wantCode(t, c.Thread.Commit(t.Context(), testCodec, 0, []byte("state")), fault.ThreadDurabilityUncertain)
			r := c.stand.Record(t)
			want := binding.End{Kind: binding.EndError, Reason: string(fault.ThreadDurabilityUncertain)}
			if r.Run.End != want || r.Head.Revision != 0 || c.point.committed {
				t.Errorf("end %+v, revision %d, committed: %v", r.Run.End, r.Head.Revision, c.point.committed)
			}
			if c.count("CommitHead") != attempts || c.count("MarkUncertain") != 1 {
				t.Errorf("%q", c.requests)
			}
		})
	}
}
