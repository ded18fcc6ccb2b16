package rpc_test

import (
	"errors"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
)

var errLost = errors.New("the reply was lost")

// lostReplies makes every write that happened look like one that may not have.
func lostReplies(err error) error {
	if err == nil {
		return errLost
	}
	return err
}

// once gives f for the first write and the truth for every further one.
func once(f func(error) error) func(error) error {
	used := false
	return func(err error) error {
		if used {
			return err
		}
		used = true
		return f(err)
	}
}

func TestCommitWhoseReplyWasLostIsReportedAsCommitted(t *testing.T) {
	for name, after := range map[string]func(error) error{
		"once":  once(lostReplies),
		"every": func(error) error { return errLost }, // only reading back can tell
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, capability.ThreadState)
			ref, err := s.write(t, "key", "state")
			must(t, err)
			s.stand.Backend.AfterWrite(after)
			res, err := s.commit(t, ref, 0)
			if err != nil || res.GetRevision() != 1 || res.GetEnd() != "success" {
				t.Errorf("got %v, %v", res, err)
			}
		})
	}
}

func TestCommitThatMayStillArriveIsUncertain(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	ref, err := s.write(t, "key", "state")
	must(t, err)
	s.stand.Backend.RefuseWrites(errors.New("the store does not answer"))
	e := s.stand.Envelope()
	_, err = s.commitAs(t, e, ref, 0, 0)
	wantCode(t, err, fault.ThreadDurabilityUncertain)

	// The worker then says so, and the end decides: no commit can arrive any more.
	s.stand.Backend.RefuseWrites(nil)
	m := s.stand.Envelope()
	res, err := s.thread.MarkUncertain(s.ctx(t, m), &threadstatev1.MarkUncertainRequest{Envelope: m.Proto()})
	if err != nil || res.GetEnd() != "error" {
		t.Fatalf("got %v, %v", res, err)
	}
	if end := s.stand.Record(t).Run.End; end.Reason != string(fault.ThreadDurabilityUncertain) {
		t.Errorf("end is %+v", end)
	}
	_, err = s.commitAs(t, e, ref, 0, 0)
	wantCode(t, err, fault.StaleLease)
	s.wantHead(t, 0, "")
}

// MarkUncertain does not undo what was decided.
func TestMarkUncertainAfterCommit(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	ref, err := s.write(t, "key", "state")
	must(t, err)
	_, err = s.commit(t, ref, 0)
	must(t, err)
	e := s.stand.Envelope()
	res, err := s.thread.MarkUncertain(s.ctx(t, e), &threadstatev1.MarkUncertainRequest{Envelope: e.Proto()})
	if err != nil || res.GetEnd() != "success" {
		t.Errorf("got %v, %v", res, err)
	}
	s.wantHead(t, 1, "state")
}

// A lease that is replaced between admission and write is told how its run ends,
// which it does not change.
func TestMarkUncertainOfAReplacedLease(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	s.stand.Backend.BeforeWrite(func() { s.stand.Replace(t) })
	e := s.stand.Envelope()
	res, err := s.thread.MarkUncertain(s.ctx(t, e), &threadstatev1.MarkUncertainRequest{Envelope: e.Proto()})
	if err != nil || res.GetEnd() != "lost" {
		t.Errorf("got %v, %v", res, err)
	}
	r := s.stand.Record(t)
	if end := r.EndingRun().Run.End; end != (binding.End{Kind: binding.EndLost}) {
		t.Errorf("end is %+v", end)
	}
}

func TestSnapshotStoreThatDoesNotTell(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	s.hooks.stageError = errLost
	_, err := s.write(t, "key", "state")
	wantCode(t, err, fault.PersistenceFailed)
	s.hooks.stageError = nil
	ref, err := s.write(t, "key", "state")
	must(t, err)
	_, err = s.commit(t, ref, 0)
	must(t, err)
}
