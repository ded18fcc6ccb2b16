package rpc_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
)

// question asks for the input of a form.
func question(id, prompt string) event.InterruptRequested {
	return event.InterruptRequested{
		InterruptID: id, InterruptType: event.InterruptFormInput, AgentID: "agent-1", Prompt: prompt,
		Fields: []event.FormField{{FieldName: "which", FieldType: "text"}},
	}
}

func hashOf(t *testing.T, i event.InterruptRequested) [sha256.Size]byte {
	t.Helper()
	body, err := event.InterruptBody(i)
	must(t, err)
	return sha256.Sum256(body)
}

func asked(t *testing.T, id, prompt string) *threadstatev1.PendingInterrupt {
	t.Helper()
	sum := hashOf(t, question(id, prompt))
	return &threadstatev1.PendingInterrupt{InterruptId: id, Sha256: sum[:]}
}

// ask puts a question into the log of the run.
func (s *session) ask(t *testing.T, id, prompt string) {
	t.Helper()
	e := event.Draft{Data: question(id, prompt)}.Event(s.stand.RunID, "conversation-1", s.stand.Record(t).Run.EventHead, time.Now().UTC())
	raw, err := event.Encode(e)
	must(t, err)
	s.stand.AppendEvents(t, raw)
}

// commitAsking commits at the revision and ends the run with an interrupt.
func (s *session) commitAsking(t *testing.T, e fence.Envelope, ref string, expected uint64, i *threadstatev1.PendingInterrupt) (*threadstatev1.CommitHeadResponse, error) {
	t.Helper()
	return s.thread.CommitHead(s.ctx(t, e), &threadstatev1.CommitHeadRequest{
		Envelope: e.Proto(), Codec: testCodec, ExpectedRevision: expected, SnapshotRef: ref, Interrupt: i,
		LastSequence: s.stand.Record(t).Run.EventHead - 1,
	})
}

// wantPending asserts what is pending in the record.
func (s *session) wantPending(t *testing.T, want *binding.Interrupt) {
	t.Helper()
	got := s.stand.Record(t).Interrupt
	if got != nil {
		if got.At.IsZero() {
			t.Error("the interrupt has no time")
		}
		got.At = time.Time{}
	}
	if (got == nil) != (want == nil) || got != nil && *got != *want {
		t.Errorf("pending is %+v, want %+v", got, want)
	}
}

// Head, interrupt and the run's end are one write, and the same commit again is
// answered as the first time.
func TestCommitWithAnInterrupt(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	ref, err := s.write(t, "key", "state")
	must(t, err)
	e := s.stand.Envelope()
	s.ask(t, "int_1", "body")
	sum := hashOf(t, question("int_1", "body"))
	want := &binding.Interrupt{ID: "int_1", Revision: 1, Hash: hex.EncodeToString(sum[:]), RunID: s.stand.RunID}
	for range 2 {
		res, err := s.commitAsking(t, e, ref, 0, asked(t, "int_1", "body"))
		if err != nil || res.GetEnd() != "interrupted" || res.GetRevision() != 1 {
			t.Fatalf("got %v, %v", res, err)
		}
		s.wantPending(t, want)
	}
	if end := s.stand.Record(t).Run.End; end != (binding.End{Kind: binding.EndInterrupted}) {
		t.Errorf("end is %+v", end)
	}
	s.wantHead(t, 1, "state")

	for name, i := range map[string]*threadstatev1.PendingInterrupt{
		"none": nil, "another one": asked(t, "int_2", "body"), "another body": asked(t, "int_1", "other"),
	} {
		_, err := s.commitAsking(t, e, ref, 0, i)
		if !fault.Is(err, fault.IdempotencyConflict) {
			t.Errorf("%s under the same key: %v", name, err)
		}
	}
	s.wantPending(t, want)
}

// What was pending belonged to the head before: a run that ends otherwise leaves
// none, and one that asks again leaves its own.
func TestNextHeadReplacesTheInterrupt(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	commit := func(revision uint64, i *threadstatev1.PendingInterrupt) {
		t.Helper()
		if i != nil {
			s.ask(t, "int_1", "body")
		}
		ref, err := s.write(t, "snapshot", "state")
		must(t, err)
		_, err = s.commitAsking(t, s.stand.Envelope(), ref, revision, i)
		must(t, err)
	}
	commit(0, asked(t, "int_1", "body"))
	s.stand.EndRun(t)
	s.stand.StartRun(t, "run_that_asks_again")
	commit(1, asked(t, "int_1", "body"))
	sum := hashOf(t, question("int_1", "body"))
	s.wantPending(t, &binding.Interrupt{ID: "int_1", Revision: 2, Hash: hex.EncodeToString(sum[:]), RunID: "run_that_asks_again"})
	s.stand.EndRun(t)
	s.stand.StartRun(t, "run_that_finishes")
	commit(2, nil)
	s.wantPending(t, nil)
}

// A cancel that was decided first wins: the state is kept, nobody is asked.
func TestInterruptAfterCancel(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	ref, err := s.write(t, "key", "state")
	must(t, err)
	s.ask(t, "int_1", "body")
	cancelled := binding.End{Kind: binding.EndCancelling, Reason: "client_request"}
	_, err = s.stand.Writer.SetEnd(t.Context(), s.stand.Grant(t, s.stand.Envelope()), cancelled)
	must(t, err)
	res, err := s.commitAsking(t, s.stand.Envelope(), ref, 0, asked(t, "int_1", "body"))
	if err != nil || res.GetEnd() != "cancelling" || res.GetRevision() != 1 {
		t.Errorf("got %v, %v", res, err)
	}
	s.wantPending(t, nil)
	if end := s.stand.Record(t).Run.End; end != cancelled {
		t.Errorf("end is %+v", end)
	}
}

// A reply that was lost is settled by reading back, and a worker that asks how
// its run ends is told that it waits.
func TestInterruptWhoseReplyWasLost(t *testing.T) {
	for name, after := range map[string]func(error) error{
		"once":  once(lostReplies),
		"every": func(error) error { return errLost },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, capability.ThreadState)
			ref, err := s.write(t, "key", "state")
			must(t, err)
			s.ask(t, "int_1", "body")
			s.stand.Backend.AfterWrite(after)
			res, err := s.commitAsking(t, s.stand.Envelope(), ref, 0, asked(t, "int_1", "body"))
			if err != nil || res.GetRevision() != 1 || res.GetEnd() != "interrupted" {
				t.Errorf("got %v, %v", res, err)
			}
			s.stand.Backend.AfterWrite(nil)
			m := s.stand.Envelope()
			marked, err := s.thread.MarkUncertain(s.ctx(t, m), &threadstatev1.MarkUncertainRequest{Envelope: m.Proto()})
			if err != nil || marked.GetEnd() != "interrupted" {
				t.Errorf("got %v, %v", marked, err)
			}
		})
	}
}

// What people are asked is what the log says, and nothing else can be committed:
// nobody could answer it.
func TestInterruptsThatNobodySaw(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	ref, err := s.write(t, "key", "state")
	must(t, err)
	for name, i := range map[string]*threadstatev1.PendingInterrupt{
		"nothing was asked": asked(t, "int_1", "body"),
	} {
		_, err := s.commitAsking(t, s.stand.Envelope(), ref, 0, i)
		if !fault.Is(err, fault.Protocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.ask(t, "int_1", "body")
	s.stand.Append(t, 3) // what was open is closed
	for name, i := range map[string]*threadstatev1.PendingInterrupt{
		"another id":       asked(t, "int_2", "body"),
		"another question": asked(t, "int_1", "other"),
	} {
		_, err := s.commitAsking(t, s.stand.Envelope(), ref, 0, i)
		if !fault.Is(err, fault.Protocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r := s.stand.Record(t); r.Head.Revision != 0 || !r.Run.End.Open() {
		t.Fatalf("the record changed: %+v %+v", r.Head, r.Run.End)
	}
	_, err = s.commitAsking(t, s.stand.Envelope(), ref, 0, asked(t, "int_1", "body"))
	must(t, err)
}

func TestInterruptsThatAreNone(t *testing.T) {
	s := newSession(t, capability.ThreadState)
	ref, err := s.write(t, "key", "state")
	must(t, err)
	for name, i := range map[string]*threadstatev1.PendingInterrupt{
		"no id":              {Sha256: make([]byte, 32)},
		"an id that is none": {InterruptId: "int 1", Sha256: make([]byte, 32)},
		"no digest":          {InterruptId: "int_1"},
		"a short digest":     {InterruptId: "int_1", Sha256: make([]byte, 31)},
	} {
		_, err := s.commitAsking(t, s.stand.Envelope(), ref, 0, i)
		if !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r := s.stand.Record(t); r.Head.Revision != 0 || !r.Run.End.Open() {
		t.Errorf("the record changed: %+v %+v", r.Head, r.Run.End)
	}
}
