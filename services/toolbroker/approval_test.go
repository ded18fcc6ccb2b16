package toolbroker

import (
	"path/filepath"
	"testing"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/hostile"
)

// A tool whose policy asks for it is called with a grant for that very call, and
// without one never, whatever the worker says.
func TestACallThatNeedsApproval(t *testing.T) {
	effects := filepath.Join(t.TempDir(), "effects")
	s := newSession(t, catalogue.Server{
		Namespace: "a", Transport: catalogue.TransportStdio, Command: hostile.Command(t, "-effects", effects),
		Tools: []string{"count", "echo"}, Approval: catalogue.ApprovalAlways,
		ToolOptions: map[string]catalogue.ToolOptions{"echo": {Approval: catalogue.ApprovalNever}},
	})
	s.grants.allow(t, subject, authz.ToolID("a.count"), authz.ToolID("a.echo"))
	wait(t, func() bool { found, _ := s.service.catalogue.List([]string{"a.*"}); return len(found) == 2 })
	found, _ := s.service.catalogue.List([]string{"a.*", "x.count"})
	for _, d := range found {
		if want := d.ID == "a.count"; d.ApprovalRequired != want {
			t.Errorf("%s needs approval: %v", d.ID, d.ApprovalRequired)
		}
	}
	_, err := s.call(t, "a.echo", `{"text":"free"}`)
	must(t, err)
	_, err = s.call(t, "a.count", `{}`)
	wantCode(t, err, fault.ApprovalRequired)
	if rows := s.stand.Rows(t); len(rows) != 1 {
		t.Errorf("a refused call has a row: %+v", rows)
	}

	s.stand.ResumeRun(t, binding.Carried{ToolCallID: "call-1", Decision: "approve", ArgsDigest: binding.ToolCallDigest("a.count", []byte(`{}`))})
	e := s.stand.Envelope()
	e.IdempotencyKey = "call-1"
	for range 2 { // the second one from the ledger
		_, err = s.callAs(t.Context(), e, "a.count", `{ }`)
		must(t, err)
	}
	e.IdempotencyKey = "call-2" // under another key it is another call, which nobody approved
	_, err = s.callAs(t.Context(), e, "a.count", `{}`)
	wantCode(t, err, fault.ApprovalRequired)
	if got := hostile.Effects(t, effects); len(got) != 1 {
		t.Errorf("effects: %v", got)
	}
}

// An agent's own policy holds at the broker too: what the capability says needs
// approval is refused without it, whatever the worker was told.
func TestAnAgentsToolsThatNeedApproval(t *testing.T) {
	s := newSession(t)
	s.allowed, s.approve = []string{"x.count", "x.echo"}, []string{"x.count"}
	_, err := s.call(t, "x.count", `{}`)
	wantCode(t, err, fault.ApprovalRequired)
	_, err = s.call(t, "x.echo", `{}`)
	must(t, err)
	s.stand.ResumeRun(t, binding.Carried{ToolCallID: "call-1", Decision: "edit", ArgsDigest: binding.ToolCallDigest("x.count", []byte(`{}`))})
	e := s.stand.Envelope()
	e.IdempotencyKey = "call-1"
	_, err = s.callAs(t.Context(), e, "x.count", `{}`)
	must(t, err)
	if got := s.count(t); len(got) != 1 {
		t.Errorf("effects: %v", got)
	}
}

// The ledger has a call under the envelope's key, the event log under its id. A worker
// that names another call there is refused before anything is looked up.
func TestACallsIDIsItsKey(t *testing.T) {
	s := newSession(t)
	s.allowed = []string{"x.count"}
	e := s.stand.Envelope()
	req := request(e, "x.count", `{}`)
	req.ToolCallId = "another"
	_, err := s.send(t.Context(), e, req)
	wantCode(t, err, fault.InvalidRequest)
	if rows := s.stand.Rows(t); len(rows) != 0 {
		t.Errorf("a refused call has a row: %+v", rows)
	}
	_, err = s.callAs(t.Context(), e, "x.count", `{}`)
	must(t, err)
}
