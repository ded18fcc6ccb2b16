package toolbroker

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/hostile"
)

func TestTheSameKeyGivesTheStoredOutcome(t *testing.T) {
	s := newSession(t)
	e := s.stand.Envelope()
	first, err := s.callAs(t.Context(), e, "x.count", `{"a":1,"b":[true,null]}`)
	must(t, err)
	again, err := s.callAs(t.Context(), e, "x.count", ` { "b": [true, null], "a": 1 } `) // the same arguments
	must(t, err)
	if first.GetReplayed() || !again.GetReplayed() || string(first.GetResult()) != string(again.GetResult()) {
		t.Errorf("first %v, again %v", first, again)
	}
	for name, args := range map[string]string{"other value": `{"a":2,"b":[true,null]}`, "more": `{"a":1,"b":[true,null],"c":0}`, "none": `{}`} {
		if _, err := s.callAs(t.Context(), e, "x.count", args); !fault.Is(err, fault.IdempotencyConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = s.callAs(t.Context(), e, "x.echo", `{"a":1,"b":[true,null]}`)
	wantCode(t, err, fault.IdempotencyConflict) // another tool
	if got := s.count(t); len(got) != 1 {
		t.Errorf("effects: %v", got)
	}
	rows := s.stand.Rows(t)
	if len(rows) != 1 || rows[0].State != binding.RowConcluded || rows[0].Kind != "tool" {
		t.Errorf("rows: %+v", rows)
	}
}

// A failure of the tool is an outcome: it is stored and not tried again
// (qwen-code 5381).
func TestAnOrdinaryToolErrorIsAResult(t *testing.T) {
	s := newSession(t)
	for tool, want := range map[string]string{
		"x.fail":         "no such thing",
		"x.rpc_error":    "answered with an error (-32602)",
		"x.no_such_tool": "",
		"x.ask":          "asks for input",
		"x.null_result":  "no form of the protocol",
	} {
		e := s.stand.Envelope()
		res, err := s.callAs(t.Context(), e, tool, `{}`)
		if tool == "x.no_such_tool" { // its server never listed it
			wantCode(t, err, fault.ToolUnavailable)
			continue
		}
		if got := textOf(res, err); !res.GetIsError() || !strings.Contains(got, want) {
			t.Errorf("%s: %q (error %v)", tool, got, res.GetIsError())
		}
		again, err := s.callAs(t.Context(), e, tool, `{}`)
		if err != nil || !again.GetReplayed() || !again.GetIsError() || string(again.GetResult()) != string(res.GetResult()) {
			t.Errorf("%s again: %v %v", tool, again, err)
		}
	}
}

func TestManyAtOnceUnderOneKeyAreOneCall(t *testing.T) {
	s := newSession(t)
	e := s.stand.Envelope()
	var all sync.WaitGroup
	answers := make(chan *toolbrokerv1.CallToolResponse, 16)
	for range cap(answers) {
		all.Go(func() {
			res, err := s.callAs(t.Context(), e, "x.count", `{}`)
			if err != nil {
				t.Error(err)
			}
			answers <- res
		})
	}
	all.Wait()
	replayed := 0
	for range cap(answers) {
		if (<-answers).GetReplayed() {
			replayed++
		}
	}
	if got := s.count(t); len(got) != 1 || replayed != cap(answers)-1 {
		t.Errorf("effects: %v, replayed: %d", got, replayed)
	}
}

// A broker that was restarted is asked again for what it did before, and the
// tool's server is not back yet: the ledger answers, and nobody is told that the
// tool could not be called (smg 2441).
func TestTheLedgerAnswersBeforeTheToolIsBack(t *testing.T) {
	z := catalogue.Server{
		Namespace: "z", Transport: catalogue.TransportStdio, Command: hostile.Command(t, "-effects", filepath.Join(t.TempDir(), "effects")),
		Tools: []string{"echo", "count"},
	}
	before := newSession(t, z)
	before.grants.allow(t, subject, authz.ToolID("z.count"))
	e := before.stand.Envelope()
	first, err := before.callAs(t.Context(), e, "z.count", `{"a":1}`)
	must(t, err)

	z.Command = []string{"/nonexistent"}
	after := sessionOn(t, before.stand, z)
	after.grants.allow(t, subject, authz.ToolID("z.count"), authz.ToolID("z.echo"))
	again, err := after.callAs(t.Context(), e, "z.count", `{"a":1}`)
	must(t, err)
	if !again.GetReplayed() || string(again.GetResult()) != string(first.GetResult()) {
		t.Errorf("first %v, again %v", first, again)
	}
	_, err = after.callAs(t.Context(), e, "z.count", `{"a":2}`)
	wantCode(t, err, fault.IdempotencyConflict)
	_, err = after.callAs(t.Context(), after.stand.Envelope(), "z.echo", `{}`) // never called before
	wantCode(t, err, fault.ToolUnavailable)
}

// The scope of a key is the run: no other binding's outcome can be met.
func TestAKeyMeansNothingInAnotherRun(t *testing.T) {
	s := newSession(t)
	other := s.stand.Another(t, func(id *binding.Identity) { id.ConversationID = "another" })
	for _, e := range []struct{ env, key string }{{"one", "same-key"}, {"two", "same-key"}} {
		env := s.stand.Envelope()
		if e.env == "two" {
			env = other.Envelope()
		}
		env.IdempotencyKey = e.key
		res, err := s.callAs(t.Context(), env, "x.count", `{}`)
		if err != nil || res.GetReplayed() {
			t.Errorf("%s: %v %v", e.env, res, err)
		}
	}
	if got := s.count(t); len(got) != 2 {
		t.Errorf("effects: %v", got)
	}
}

// A lease that is replaced between admission and row, by somebody who revokes
// what was admitted: the tool is not called.
func TestLeaseReplacedBetweenAdmissionAndRow(t *testing.T) {
	s := newSession(t)
	s.stand.Backend.BeforeWrite(func() { // the next write admits the key
		s.stand.Backend.BeforeWrite(func() { // the one after it is the row
			s.stand.Replace(t)
			r := s.stand.Record(t)
			effects, err := s.stand.Writer.Revoke(context.WithoutCancel(t.Context()), r, r.Ending[0])
			must(t, err)
			if effects != "none" {
				t.Errorf("side effects: %s", effects)
			}
		})
	})
	e := s.stand.Envelope()
	_, err := s.callAs(t.Context(), e, "x.count", `{}`)
	if err == nil || fault.CodeOf(err) == fault.ToolOutcomeUnknown {
		t.Errorf("got %v", err)
	}
	if got := s.count(t); len(got) != 0 {
		t.Errorf("effects: %v", got)
	}
	rows := s.stand.Rows(t)
	if len(rows) != 1 || rows[0].State != binding.RowRevoked {
		t.Errorf("rows: %+v", rows)
	}
	_, err = s.callAs(t.Context(), e, "x.count", `{}`)
	wantCode(t, err, fault.StaleLease)
}

// The end of a run that is decided after the door lets no further call begin.
func TestNoCallBeginsAfterTheEndIsDecided(t *testing.T) {
	s := newSession(t)
	s.stand.Backend.BeforeWrite(func() {
		_, err := s.stand.Writer.SetEnd(t.Context(), s.stand.Grant(t, s.stand.Envelope()), binding.End{Kind: binding.EndCancelling, Reason: "client_request"})
		must(t, err)
	})
	_, err := s.call(t, "x.count", `{}`)
	wantCode(t, err, fault.Cancelled)
	if got := s.count(t); len(got) != 0 {
		t.Errorf("effects: %v", got)
	}
}
