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
	return send(s.ctx(t, e), s.thread, parts(e, payload)...)
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
