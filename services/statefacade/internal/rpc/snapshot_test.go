package rpc_test

import (
	"fmt"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/statefacade/internal/threadstate"
)

func (s *session) write(t *testing.T, key, payload string) (string, error) {
	t.Helper()
	e := s.stand.Envelope()
	e.IdempotencyKey = key
	res, err := s.thread.WriteSnapshot(s.ctx(t, e), writeRequest(e.Proto(), payload))
	return res.GetSnapshotRef(), err
}

func TestSnapshotKeyNamesOneContent(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	first, err := s.write(t, "key", "state")
	must(t, err)
	again, err := s.write(t, "key", "state")
	if err != nil || again != first {
		t.Errorf("got %q, %v, want %q", again, err, first)
	}
	_, err = s.write(t, "key", "other state")
	wantCode(t, err, fault.IdempotencyConflict)
	if other, err := s.write(t, "other-key", "state"); err != nil || other == first {
		t.Errorf("another key gave %q, %v", other, err)
	}
}

func TestSnapshotsOfARunAreBounded(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	for n := range threadstate.MaxSnapshotsPerRun {
		_, err := s.write(t, fmt.Sprint("key-", n), "state")
		must(t, err)
	}
	_, err := s.write(t, "one-more", "state")
	wantCode(t, err, fault.Capacity)
	_, err = s.write(t, "key-0", "state")
	must(t, err)
}

func TestSnapshotWithWrongDigestIsNotKept(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	before := s.state(t)
	e := s.stand.Envelope()
	req := writeRequest(e.Proto(), "state")
	req.Payload = []byte("other")
	_, err := s.thread.WriteSnapshot(s.ctx(t, e), req)
	wantCode(t, err, fault.InvalidRequest)
	if after := s.state(t); after != before {
		t.Errorf("something was kept: %s", after)
	}
}

func TestLargestSnapshot(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	payload := string(make([]byte, threadstate.MaxSnapshotBytes))
	ref, err := s.write(t, "largest", payload)
	must(t, err)
	_, err = s.commit(t, ref, 0)
	must(t, err)
	s.stand.EndRun(t)
	s.stand.StartRun(t, "run_after_that")
	s.wantHead(t, 1, payload)

	before := s.state(t)
	if _, err = s.write(t, "too-large", payload+"x"); !fault.Is(err, fault.InvalidRequest) && !fault.Is(err, fault.StateTooLarge) {
		t.Errorf("got %v", err) // the schema has the same bound, and may answer first
	}
	_, err = s.write(t, "far-too-large", payload+payload)
	wantCode(t, err, fault.RequestTooLarge)
	if after := s.state(t); after != before {
		t.Error("something was kept")
	}
}

// Nor can a later run make it its head.
func TestSnapshotOfAnotherRunIsNotFound(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	ref, err := s.write(t, "one", "pending")
	must(t, err)
	s.stand.EndRun(t)
	s.stand.StartRun(t, "run_after_that")
	_, err = s.commit(t, ref, 0)
	wantCode(t, err, fault.NotFound)
	other := s.stand.Another(t, func(id *binding.Identity) { id.Subject = "user-2" })
	e := other.Envelope()
	_, err = s.commitAs(t, e, ref, 0, 0)
	wantCode(t, err, fault.NotFound)
	if h := other.Record(t).Head; h.Revision != 0 {
		t.Errorf("the other binding's head moved: %+v", h)
	}
}
