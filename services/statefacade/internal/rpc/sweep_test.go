package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/statefacade/internal/threadstate"
)

// fates numbers the writes of a turn's commit, whichever store they go to, and lets
// one of them, or all from one on, be lost.
type fates struct {
	// at is the write that is lost; 0 is none. done says that it happened and only its
	// answer is lost, forGood that every later one is as well.
	at            int
	done, forGood bool

	seen int
}

func (f *fates) write(do func() error) error {
	f.seen++
	if f.at == 0 || f.seen < f.at || f.seen > f.at && !f.forGood {
		return do()
	}
	if f.done {
		if err := do(); err != nil {
			return err
		}
	}
	return errLost
}

type fatedRecords struct {
	binding.Backend
	*fates
}

func (b fatedRecords) Update(ctx context.Context, id string, f binding.Filter, change func(*binding.Record) error) (r binding.Record, err error) {
	refused := false
	err = b.write(func() (err error) {
		r, err = b.Backend.Update(ctx, id, f, change)
		refused = err != nil
		return err
	})
	if refused { // an answer, which was not lost
		b.seen--
	}
	return r, err
}

type fatedSnapshots struct {
	threadstate.Snapshots
	*fates
}

func (s fatedSnapshots) Stage(ctx context.Context, snap threadstate.Snapshot, most int) (stands threadstate.Entry, err error) {
	err = s.write(func() (err error) { stands, err = s.Snapshots.Stage(ctx, snap, most); return err })
	return stands, err
}

func (s fatedSnapshots) Confirm(ctx context.Context, ref string) error {
	return s.write(func() error { return s.Snapshots.Confirm(ctx, ref) })
}

type fatedBlobs struct {
	blob.Store
	*fates
}

func (b fatedBlobs) Create(ctx context.Context, key string) (blob.Writer, error) {
	w, err := b.Store.Create(ctx, key)
	return fatedWriter{w, b.fates}, err
}

type fatedWriter struct {
	blob.Writer
	*fates
}

// Write is that of the blob.
func (w fatedWriter) Write(p []byte) (int, error) { return w.Writer.Write(p) }

func (w fatedWriter) Commit() error { return w.write(w.Writer.Commit) }

// Whichever write of the commit protocol is lost, with or without having happened,
// once or for as long as anybody tries: what is answered is true. A commit that is
// said to be done is; one that is said to have failed is not; and that nobody knows is
// said of a head alone that may have been sent and that the record does not show. The
// same requests under the same keys then make it so, once.
func TestEachLostWriteOfACommitIsToldTruly(t *testing.T) {
	for size, state := range map[string]string{"small": "state", "large": strings.Repeat("x", threadstate.MaxInlineBytes+1)} {
		var none fates
		s := fated(t, &none)
		if _, err := s.save(t, s.stand.Envelope(), state); err != nil {
			t.Fatal(err)
		}
		steps := none.seen
		if want := map[string]int{"small": 3, "large": 4}[size]; steps != want {
			t.Fatalf("%s: %d writes, want %d: stage, payload, confirm, head", size, steps, want)
		}
		for at := 1; at <= steps; at++ {
			for _, f := range []fates{{done: true}, {}, {done: true, forGood: true}, {forGood: true}} {
				f.at = at
				t.Run(fmt.Sprintf("%s/write %d/happened %v/for good %v", size, at, f.done, f.forGood), func(t *testing.T) {
					loseOne(t, state, f, at == steps)
				})
			}
		}
	}
}

// fated is a session whose writes have fates.
func fated(t *testing.T, f *fates) *session {
	t.Helper()
	s := newSession(t, capability.ThreadState)
	s.stand.Backend.Backend = fatedRecords{s.stand.Backend.Backend, f}
	s.hooks.Snapshots = fatedSnapshots{s.hooks.Snapshots, f}
	s.blobs.Store = fatedBlobs{s.blobs.Store, f}
	return s
}

// save writes a snapshot and commits it, under the same keys each time, and says
// which of the two failed.
func (s *session) save(t *testing.T, head fence.Envelope, state string) (stage string, err error) {
	t.Helper()
	ref, err := s.write(t, "snapshot", state)
	if err != nil {
		return "snapshot", err
	}
	_, err = s.commitAs(t, head, ref, 0, 0)
	return "head", err
}

func loseOne(t *testing.T, state string, f fates, ofHead bool) {
	t.Helper()
	s := fated(t, &f)
	head := s.stand.Envelope()
	stage, err := s.save(t, head, state)
	if f.seen < f.at {
		t.Fatalf("the write was never made: %d", f.seen)
	}
	r := s.stand.Record(t)
	moved, unknown := r.Head.Revision == 1, fault.Is(err, fault.ThreadDurabilityUncertain)
	if want := ofHead && !f.done && f.forGood; unknown != want {
		t.Errorf("said not to be known: %v, want %v: %v", unknown, want, err)
	}
	switch {
	case err == nil:
		if !moved || r.Run.End.Kind != binding.EndSuccess {
			t.Errorf("said to be done, and is not: %+v, %+v", r.Head, r.Run.End)
		}
	case moved:
		t.Errorf("said to have failed (%v), and is done", err)
	case !r.Run.End.Open():
		t.Errorf("%s: %v, with the end %+v", stage, err, r.Run.End)
	case !unknown && (stage == "head" || !fault.Is(err, fault.PersistenceFailed)):
		t.Errorf("%s: %v", stage, err)
	}

	f.at = 0 // the store is back
	if _, err := s.save(t, head, state); err != nil {
		t.Fatalf("the same requests again: %v", err)
	}
	s.wantHead(t, 1, state)
	all, err := s.hooks.List(t.Context(), r.ID)
	if err != nil || len(all) != 1 || !all[0].Confirmed {
		t.Errorf("left behind: %+v, %v", all, err)
	}
}
