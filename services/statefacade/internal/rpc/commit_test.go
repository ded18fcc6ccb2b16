package rpc_test

import (
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
)

func (s *session) commitAs(t *testing.T, e fence.Envelope, ref string, expected, last uint64) (*threadstatev1.CommitHeadResponse, error) {
	t.Helper()
	return s.thread.CommitHead(s.ctx(t, e), &threadstatev1.CommitHeadRequest{
		Envelope: e.Proto(), Codec: testCodec, ExpectedRevision: expected, SnapshotRef: ref, LastSequence: last,
	})
}

func (s *session) commit(t *testing.T, ref string, expected uint64) (*threadstatev1.CommitHeadResponse, error) {
	t.Helper()
	return s.commitAs(t, s.stand.Envelope(), ref, expected, 0)
}

func TestCommitConflicts(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	ref, err := s.write(t, "key", "state")
	must(t, err)
	other, err := s.write(t, "other-key", "other state")
	must(t, err)

	_, err = s.commit(t, ref, 1)
	wantCode(t, err, fault.RevisionConflict)
	_, err = s.commit(t, "snap_nobody_wrote", 0)
	wantCode(t, err, fault.NotFound)
	e := s.stand.Envelope()
	_, err = s.thread.CommitHead(s.ctx(t, e), &threadstatev1.CommitHeadRequest{
		Envelope: e.Proto(), Codec: &threadstatev1.Codec{Name: "native", Version: 2}, SnapshotRef: ref,
	})
	wantCode(t, err, fault.InvalidRequest)
	if r := s.stand.Record(t); r.Head.Revision != 0 || !r.Run.End.Open() {
		t.Fatalf("a refused commit changed the record: %+v %+v", r.Head, r.Run.End)
	}

	first, err := s.commitAs(t, e, ref, 0, 0)
	must(t, err)
	again, err := s.commitAs(t, e, ref, 0, 0)
	if err != nil || again.GetRevision() != first.GetRevision() || again.GetEnd() != first.GetEnd() {
		t.Errorf("the same commit gave %v, %v, then %v", first, err, again)
	}
	_, err = s.commitAs(t, e, other, 0, 0)
	wantCode(t, err, fault.IdempotencyConflict)
	_, err = s.commit(t, other, 1)
	wantCode(t, err, fault.StaleLease) // the run's end is decided
	s.wantHead(t, 1, "state")
}

// A cancel that was decided first stands, and the state is kept all the same.
func TestCommitAfterCancel(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	ref, err := s.write(t, "key", "state")
	must(t, err)
	cancelled := binding.End{Kind: binding.EndCancelling, Reason: "client_request"}
	_, err = s.stand.Writer.SetEnd(t.Context(), s.stand.Grant(t, s.stand.Envelope()), cancelled)
	must(t, err)
	res, err := s.commit(t, ref, 0)
	if err != nil || res.GetEnd() != "cancelling" || res.GetRevision() != 1 {
		t.Errorf("got %v, %v", res, err)
	}
	if end := s.stand.Record(t).Run.End; end != cancelled {
		t.Errorf("end is %+v", end)
	}
}

// A head never covers text that the log lacks.
func TestCommitWaitsForTheLog(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	ref, err := s.write(t, "key", "state")
	must(t, err)
	done := make(chan error, 1)
	e := s.stand.Envelope()
	asked := make(chan struct{})
	s.stand.Backend.BeforeWrite(func() { close(asked) })
	ctx := s.ctx(t, e)
	go func() {
		_, err := s.thread.CommitHead(ctx, &threadstatev1.CommitHeadRequest{Envelope: e.Proto(), Codec: testCodec, SnapshotRef: ref, LastSequence: 3})
		done <- err
	}()
	<-asked
	s.stand.Append(t, 2)
	if h := s.stand.Record(t).Head; h.Revision != 0 {
		t.Fatalf("the head moved before the log held event 3: %+v", h)
	}
	s.stand.Append(t, 1)
	must(t, <-done)
	if h := s.stand.Record(t).Head; h.Revision != 1 {
		t.Errorf("head is %+v", h)
	}
}

func TestCommitDoesNotWaitPastItsDeadline(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	ref, err := s.write(t, "key", "state")
	must(t, err)
	e := s.stand.Envelope()
	e.Deadline = time.Now().Add(300 * time.Millisecond)
	_, err = s.commitAs(t, e, ref, 0, 1000)
	wantCode(t, err, fault.DeadlineExceeded)
	if r := s.stand.Record(t); r.Head.Revision != 0 || !r.Run.End.Open() {
		t.Errorf("record is %+v %+v", r.Head, r.Run.End)
	}
}
