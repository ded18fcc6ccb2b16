package rpc_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/services/statefacade/internal/threadstate"
)

// largeState is state of so many bytes that no compression makes small.
func largeState(size int) string {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return string(b)
}

// nextRun ends the run and starts another one.
func (s *session) nextRun(t *testing.T, id string) {
	t.Helper()
	s.stand.EndRun(t)
	s.stand.StartRun(t, id)
}

func TestSnapshotsOfEverySize(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	revision := uint64(0)
	for _, size := range []int{1, threadstate.MaxInlineBytes, threadstate.MaxInlineBytes + 1, 20 << 20} {
		payload := largeState(size)
		before, files := len(s.files(t)), 0
		if size > threadstate.MaxInlineBytes {
			files = 1
		}
		ref, err := s.write(t, "key", payload)
		must(t, err)
		again, err := s.write(t, "key", payload)
		if err != nil || again != ref {
			t.Errorf("%d bytes again gave %q, %v", size, again, err)
		}
		if got := len(s.files(t)) - before; got != files {
			t.Errorf("%d bytes made %d files, want %d", size, got, files)
		}
		_, err = s.commit(t, ref, revision)
		must(t, err)
		revision++
		s.nextRun(t, fmt.Sprint("run_after_", size))
		s.wantHead(t, revision, payload)
	}
}

// The largest one, past the wire, which carries it no otherwise.
func TestLargestSnapshot(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	payload := largeState(threadstate.MaxSnapshotBytes)
	_, err := s.commit(t, s.pending(t, payload), 0)
	must(t, err)
	e := s.stand.Envelope()
	got := sha256.New()
	err = s.opened.thread().LoadHead(t.Context(), s.stand.Grant(t, e), threadstate.Adapter{Harness: "native", Version: "1"}, threadstate.Codec{Name: "native", Version: 1},
		func(_ *threadstate.Head, chunk []byte) error { got.Write(chunk); return nil })
	if want := blob.Of([]byte(payload)); err != nil || string(got.Sum(nil)) != string(want.SHA256[:]) {
		t.Errorf("it came back otherwise: %v", err)
	}
}

func TestSnapshotsThatAreTooLarge(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	before := s.state(t)
	e := s.stand.Envelope()
	p := parts(e, "state")
	p[0].Info.Size = threadstate.MaxSnapshotBytes + 1
	_, err := send(s.ctx(t, e), s.thread, p...)
	wantCode(t, err, fault.InvalidRequest) // the schema has the same bound
	_, err = s.opened.thread().WriteSnapshot(t.Context(), s.stand.Grant(t, s.stand.Envelope()), threadstate.Codec{}, blob.Content{Size: threadstate.MaxSnapshotBytes + 1}, nil)
	wantCode(t, err, fault.StateTooLarge)
	if after := s.state(t); after != before {
		t.Error("something was kept")
	}
}

// What is not whole is not kept, and its key is free for what is.
func TestSnapshotsThatAreNotWhole(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	for size, payload := range map[string]string{"small": "state", "large": largeState(3 << 20)} {
		other := blob.Of([]byte("other"))
		for name, c := range map[string]struct {
			change func([]*threadstatev1.WriteSnapshotRequest) []*threadstatev1.WriteSnapshotRequest
			code   fault.Code
		}{
			"truncated": {func(p []*threadstatev1.WriteSnapshotRequest) []*threadstatev1.WriteSnapshotRequest {
				p[0].Chunk = p[0].GetChunk()[1:]
				return p
			}, fault.InvalidRequest},
			"more than whole": {func(p []*threadstatev1.WriteSnapshotRequest) []*threadstatev1.WriteSnapshotRequest {
				p[0].Info.Size--
				return p
			}, fault.InvalidRequest},
			"wrong digest": {func(p []*threadstatev1.WriteSnapshotRequest) []*threadstatev1.WriteSnapshotRequest {
				p[0].Info.Sha256 = other.SHA256[:]
				return p
			}, fault.InvalidRequest},
			"no info": {func(p []*threadstatev1.WriteSnapshotRequest) []*threadstatev1.WriteSnapshotRequest {
				p[0].Info = nil
				return p
			}, fault.InvalidRequest},
			"no codec": {func(p []*threadstatev1.WriteSnapshotRequest) []*threadstatev1.WriteSnapshotRequest {
				p[0].Codec = nil
				return p
			}, fault.InvalidRequest},
			"no size": {func(p []*threadstatev1.WriteSnapshotRequest) []*threadstatev1.WriteSnapshotRequest {
				p[0].Info.Size = 0
				return p
			}, fault.InvalidRequest},
			"no parts": {func([]*threadstatev1.WriteSnapshotRequest) []*threadstatev1.WriteSnapshotRequest { return nil }, fault.InvalidRequest},
			"another run in the last part": {func(p []*threadstatev1.WriteSnapshotRequest) []*threadstatev1.WriteSnapshotRequest {
				last := &threadstatev1.WriteSnapshotRequest{Envelope: s.stand.Envelope().Proto(), Chunk: []byte("x")}
				last.Envelope.RunId = "run_another"
				return append(p, last)
			}, fault.CapabilityScope},
			"info again": {func(p []*threadstatev1.WriteSnapshotRequest) []*threadstatev1.WriteSnapshotRequest {
				return append(p, &threadstatev1.WriteSnapshotRequest{Envelope: p[0].GetEnvelope(), Info: p[0].GetInfo()})
			}, fault.InvalidRequest},
			"part too large": {func(p []*threadstatev1.WriteSnapshotRequest) []*threadstatev1.WriteSnapshotRequest {
				p[0].Chunk = make([]byte, blob.MaxChunkBytes+1)
				return p
			}, fault.InvalidRequest},
		} {
			t.Run(size+", "+name, func(t *testing.T) {
				before := s.state(t)
				e := s.stand.Envelope()
				_, err := send(s.ctx(t, e), s.thread, c.change(parts(e, payload))...)
				wantCode(t, err, c.code)
				if after := s.state(t); after != before {
					t.Errorf("something was kept")
				}
			})
		}
	}
	for key, payload := range map[string]string{"small": "state", "large": largeState(3 << 20)} {
		e := s.stand.Envelope()
		e.IdempotencyKey = key
		bad := parts(e, payload)
		bad[0].Info.Sha256 = make([]byte, sha256.Size)
		_, err := send(s.ctx(t, e), s.thread, bad...)
		wantCode(t, err, fault.InvalidRequest)
		_, err = s.write(t, key, payload)
		must(t, err)
	}
}

// A disk that gets full leaves neither a part of the payload nor its key in use.
func TestSnapshotOnAFullDisk(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	payload := largeState(3 << 20)
	before := s.state(t)
	s.blobs.room = 2 << 20
	_, err := s.write(t, "key", payload)
	wantCode(t, err, fault.PersistenceFailed)
	if after := s.state(t); after != before {
		t.Errorf("something was kept: %s", after)
	}
	s.blobs.room = 0
	ref, err := s.write(t, "key", payload)
	must(t, err)
	_, err = s.commit(t, ref, 0)
	must(t, err)
	s.wantHead(t, 1, payload)
}

func TestLargeHeadThatCannotBeTrustedIsNotLoaded(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"gone":      os.Remove,
		"truncated": func(path string) error { return os.Truncate(path, 2<<20) },
		"longer":    func(path string) error { return os.Truncate(path, 4<<20) },
		"changed": func(path string) error {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content[len(content)-1] ^= 1
			return os.WriteFile(path, content, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, capability.ThreadState)
			ref, err := s.write(t, "key", largeState(3<<20))
			must(t, err)
			_, err = s.commit(t, ref, 0)
			must(t, err)
			must(t, damage(s.files(t)[0]))
			h, err := s.load(t)
			wantCode(t, err, fault.PersistenceFailed)
			if len(h.payload) >= 3<<20 {
				t.Error("all of it was loaded all the same")
			}
		})
	}
}

// age makes all snapshots older than those that still count for the rate.
func (s *session) age(t *testing.T) {
	t.Helper()
	alter(t, s.path, `UPDATE thread_snapshots SET created_at = created_at - 120000000`)
}

// entries are the snapshots of the binding.
func (s *session) entries(t *testing.T) []threadstate.Entry {
	t.Helper()
	all, err := s.hooks.List(t.Context(), s.stand.Envelope().BindingID)
	must(t, err)
	return all
}

// A pending snapshot that lost goes with its payload; the head and what may still
// become it stay.
func TestSnapshotsThatLostAreCollected(t *testing.T) {
	for name, collect := range map[string]func(*testing.T, *session){
		"by the next write": func(t *testing.T, s *session) { t.Helper(); _, err := s.write(t, "next", "state"); must(t, err) },
		"by a sweep":        func(t *testing.T, s *session) { t.Helper(); must(t, s.opened.thread().Sweep(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, capability.ThreadState)
			_, err := s.write(t, "lost", largeState(2<<20))
			must(t, err)
			_, err = s.write(t, "lost-and-small", "state")
			must(t, err)
			head := largeState(3 << 20)
			ref, err := s.write(t, "head", head)
			must(t, err)
			_, err = s.commit(t, ref, 0)
			must(t, err)

			s.age(t)
			collect(t, s)
			if got := len(s.files(t)); got != 2 {
				t.Errorf("while the run is not over %d payloads are there, want 2", got)
			}
			s.nextRun(t, "run_after_that")
			pending := largeState(4 << 20)
			waiting, err := s.write(t, "waiting", pending)
			must(t, err)
			s.age(t)
			collect(t, s)
			if got := len(s.files(t)); got != 2 {
				t.Errorf("%d payloads are there, want the head's and the pending one's", got)
			}
			for _, e := range s.entries(t) {
				if e.Owner.RunID != "run_after_that" && e.Ref != ref {
					t.Errorf("%s of %s is left", e.Ref, e.Owner.RunID)
				}
			}
			s.wantHead(t, 1, head)
			_, err = s.commit(t, waiting, 1)
			must(t, err)
			s.wantHead(t, 2, pending)
			s.nextRun(t, "run_after_all")
			s.age(t)
			collect(t, s)
			if got := len(s.files(t)); got != 1 {
				t.Errorf("%d payloads are there, want the head's", got)
			}
			s.wantHead(t, 2, pending)
		})
	}
}

// A sweep looks once at what stays, and again where something is new.
func TestSweepSettles(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	unsettled := func() int {
		t.Helper()
		ids, err := s.hooks.Unsettled(t.Context(), time.Now(), "", 9)
		must(t, err)
		return len(ids)
	}
	ref, err := s.write(t, "key", "state")
	must(t, err)
	_, err = s.commit(t, ref, 0)
	must(t, err)
	s.age(t)
	must(t, s.opened.thread().Sweep(t.Context()))
	if unsettled() != 1 {
		t.Error("a snapshot of a run that is not over was settled")
	}
	s.nextRun(t, "run_after_that")
	must(t, s.opened.thread().Sweep(t.Context()))
	if unsettled() != 0 {
		t.Error("the head was not settled")
	}
	if _, err = s.write(t, "key", "other"); err != nil || unsettled() != 1 {
		t.Errorf("%d unsettled, %v", unsettled(), err)
	}
}

// What names a payload goes after it, so one that could not be removed is found
// again.
func TestPayloadThatCannotBeRemovedIsNotForgotten(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	_, err := s.write(t, "lost", largeState(2<<20))
	must(t, err)
	s.nextRun(t, "run_after_that")
	s.age(t)
	s.blobs.deleteError = errors.New("the store does not answer")
	must(t, s.opened.thread().Sweep(t.Context()))
	if len(s.entries(t)) != 1 || len(s.files(t)) != 1 {
		t.Fatalf("%d entries and %d payloads are left", len(s.entries(t)), len(s.files(t)))
	}
	s.blobs.deleteError = nil
	must(t, s.opened.thread().Sweep(t.Context()))
	if len(s.entries(t)) != 0 || len(s.files(t)) != 0 {
		t.Errorf("%d entries and %d payloads are left", len(s.entries(t)), len(s.files(t)))
	}
}

// Of a lease that was replaced while its payload was on the way nothing is left.
func TestLargeSnapshotOfAReplacedLease(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	before := s.state(t)
	s.hooks.BeforeWrite(func() { s.stand.Replace(t) })
	_, err := s.write(t, "key", largeState(2<<20))
	wantCode(t, err, fault.StaleLease)
	if after := s.state(t); after != before {
		t.Errorf("something was kept: %s", after)
	}
}

func TestSnapshotsOfABindingAreBounded(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	s.pendingAs(t, "key-0", "state")
	// As many as runs before it may have left, but for one.
	alter(t, s.path, fmt.Sprintf(`INSERT INTO thread_snapshots
		WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		SELECT 'many-' || i, binding_id, epoch, generation, 'run_' || i, codec, codec_version, sha256, payload, confirmed, created_at, blob, size, settled
		FROM n, thread_snapshots`, threadstate.MaxWritesPerMinute-2))
	s.pendingAs(t, "key-1", "state")
	_, err := s.write(t, "one-more", "state")
	wantCode(t, err, fault.RateLimited)
	_, err = s.write(t, "key-1", "state") // a repeat is no further one
	must(t, err)
	s.age(t)
	_, err = s.write(t, "one-more", "state")
	must(t, err)
}

func TestBytesOfABindingAreBounded(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	o := threadstate.Owner{BindingID: s.stand.Envelope().BindingID, Epoch: 1, Generation: 1, RunID: s.stand.Envelope().RunID}
	for n := range threadstate.MaxKeptBytes / threadstate.MaxSnapshotBytes {
		_, err := s.hooks.Stage(t.Context(), threadstate.Snapshot{Entry: threadstate.Entry{At: time.Now(), Blob: "snapshots/none", Info: threadstate.Info{
			Ref: fmt.Sprint("ref-", n), Owner: o, Codec: threadstate.Codec{Name: "native", Version: 1}, Content: blob.Content{Size: threadstate.MaxSnapshotBytes},
		}}}, 1000)
		must(t, err)
	}
	_, err := s.write(t, "key", "state")
	wantCode(t, err, fault.Capacity)
	if err != nil && !strings.Contains(err.Error(), "room") {
		t.Errorf("the detail does not say what is used up: %v", err)
	}
}
