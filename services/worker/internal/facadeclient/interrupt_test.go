package facadeclient

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
)

// asking is a client whose run has asked.
func asking(t *testing.T) *client {
	t.Helper()
	c := newClient(t)
	c.point.asked = event.InterruptRequested{
		InterruptID: "int-1", InterruptType: event.InterruptFormInput, AgentID: "agent", Prompt: "a < b?",
		Fields: []event.FormField{{FieldName: "yes", FieldType: "checkbox"}},
	}
	return c
}

// The head names the interrupt by its id and by the hash of what stands in the
// log, and the run ends as interrupted.
func TestInterrupt(t *testing.T) {
	c := asking(t)
	must(t, c.Thread.Interrupt(t.Context(), testCodec, 0, []byte("state")))
	if c.point.revision != 1 || c.point.committed || c.point.moved {
		t.Errorf("the run knows %+v", c.point)
	}
	body, err := event.InterruptBody(c.point.asked)
	must(t, err)
	sum := sha256.Sum256(body)
	r := c.stand.Record(t)
	want := binding.Interrupt{ID: "int-1", Revision: 1, Hash: hex.EncodeToString(sum[:]), RunID: c.stand.RunID}
	if r.Interrupt != nil {
		want.At = r.Interrupt.At
	}
	if r.Interrupt == nil || *r.Interrupt != want || r.Run.End.Kind != binding.EndInterrupted || r.Head.Revision != 1 {
		t.Errorf("the record has %+v, head %+v, end %+v", r.Interrupt, r.Head, r.Run.End)
	}
	head, err := c.Thread.Load(t.Context(), testCodec)
	must(t, err)
	if string(head.Payload) != "state" {
		t.Errorf("the head is %+v", head)
	}
}

func TestInterruptLosesItsAnswer(t *testing.T) {
	commit := threadstatev1connect.ThreadStateServiceCommitHeadProcedure
	for name, lose := range map[string]func(string) bool{
		"twice": func() func(string) bool { twice := first(2); return func(p string) bool { return twice(p, commit) } }(),
		"every": func(p string) bool { return p == commit }, // only the end of the run tells
	} {
		t.Run(name, func(t *testing.T) {
			c := asking(t)
			c.arm(func(b *brokers) { b.lose = lose })
			must(t, c.Thread.Interrupt(t.Context(), testCodec, 0, []byte("state")))
			if r := c.stand.Record(t); r.Head.Revision != 1 || r.Interrupt == nil || c.point.revision != 1 {
				t.Errorf("head %+v, interrupt %+v, the run knows %+v", r.Head, r.Interrupt, c.point)
			}
		})
	}
}

func TestInterruptStaysUnknown(t *testing.T) {
	c := asking(t)
	c.arm(func(b *brokers) {
		b.refuse = func(p string) error {
			if p == "CommitHead" {
				return fault.New(fault.Internal, "test")
			}
			return nil
		}
	})
	wantCode(t, c.Thread.Interrupt(t.Context(), testCodec, 0, []byte("state")), fault.ThreadDurabilityUncertain)
	r := c.stand.Record(t)
	if r.Interrupt != nil || r.Head.Revision != 0 || r.Run.End.Kind != binding.EndError || c.point.revision != 0 || c.point.moved {
		t.Errorf("the record has %+v, end %+v, the run knows %+v", r.Interrupt, r.Run.End, c.point)
	}
}

// A cancel that was decided first wins: the head moves, and nobody is asked.
func TestInterruptAfterACancelWasDecided(t *testing.T) {
	c := asking(t)
	_, err := c.stand.Writer.SetEnd(t.Context(), c.stand.Grant(t, c.stand.Envelope()), binding.End{Kind: binding.EndCancelling, Reason: "client_request"})
	must(t, err)
	wantCode(t, c.Thread.Interrupt(t.Context(), testCodec, 0, []byte("state")), fault.Cancelled)
	if r := c.stand.Record(t); r.Head.Revision != 1 || r.Interrupt != nil || c.point.revision != 0 || !c.point.moved {
		t.Errorf("head %+v, interrupt %+v, the run knows %+v", r.Head, r.Interrupt, c.point)
	}
}

func TestInterruptOfABrokenRun(t *testing.T) {
	c := asking(t)
	c.point.err = fault.New(fault.Protocol, "test")
	wantCode(t, c.Thread.Interrupt(t.Context(), testCodec, 0, []byte("state")), fault.Protocol)
	if c.count("CommitHead") != 0 {
		t.Error("it was committed all the same")
	}
}
