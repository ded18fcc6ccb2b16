package toolbroker

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/toolbroker/internal/audit"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/hostile"
)

// inquiry is a call whose tool asks, and the answer that goes back.
type inquiry struct {
	*session

	tool string
	args string
	run  string // that asked
	key  string
	asks event.InterruptRequested
}

// ask calls a tool that asks the user.
func (s *session) ask(t *testing.T, tool string) *inquiry {
	t.Helper()
	return s.askWith(t, tool, `{"path":"a"}`)
}

func (s *session) askWith(t *testing.T, tool, args string) *inquiry {
	t.Helper()
	e := s.stand.Envelope()
	q := &inquiry{session: s, tool: tool, args: args, run: e.RunID, key: e.IdempotencyKey}
	res, err := s.callAs(t.Context(), e, tool, args)
	must(t, err)
	q.asks = q.question(t, res)
	if !res.GetIsError() || !strings.Contains(string(res.GetResult()), "asks the user") {
		t.Errorf("what a model that cannot ask reads: %s", res.GetResult())
	}
	return q
}

// question is what a response asks.
func (q *inquiry) question(t *testing.T, res *toolbrokerv1.CallToolResponse) event.InterruptRequested {
	t.Helper()
	if len(res.GetInterrupt()) == 0 {
		t.Fatalf("nothing is asked: %s", res.GetResult())
	}
	i, err := event.DecodeInterrupt(res.GetInterrupt(), event.Bounds{})
	must(t, err)
	return i
}

// decide commits a decision on the question, in the form that the control plane
// gives it, as the run that is now the committed one.
func (q *inquiry) decide(t *testing.T, d event.ResumeDecision) event.ResumeDecision {
	t.Helper()
	d, err := d.Normal(q.asks)
	must(t, err)
	q.stand.AnswerRun(t, q.asks, d)
	return d
}

// bring calls the tool with the decision, as changed.
func (q *inquiry) bring(ctx context.Context, d event.ResumeDecision, change ...func(*fence.Envelope, *toolbrokerv1.CallToolRequest)) (*toolbrokerv1.CallToolResponse, error) {
	e := q.stand.Envelope()
	e.IdempotencyKey = q.asks.InterruptID
	req := request(e, q.tool, " "+q.args) // the same call, whatever the white space
	req.Answer = &toolbrokerv1.UserAnswer{RunId: q.run, ToolCallId: q.key, Form: []byte(d.Form), Dismissed: d.Dismiss}
	for _, c := range change {
		c(&e, req)
	}
	req.Envelope, req.ToolCallId = e.Proto(), e.IdempotencyKey
	token := q.stand.Minter.Mint(capability.Claims{
		Audience: capability.ToolBroker, Subject: rpctest.SandboxID(), Tools: []string{q.tool, "h.echo"}, ApproveTools: q.approve,
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
	})
	return q.client.CallTool(pkgrpc.WithToken(ctx, token), req)
}

func form(text string) event.ResumeDecision { return event.ResumeDecision{Form: event.Object(text)} }

// A tool of the stateless revision that asks the user ends as a question, and is
// called again with the user's answer and the state that it gave, once.
func TestAToolThatAsksIsCalledAgainWithTheAnswer(t *testing.T) {
	h := &hostile.HTTP{Stateless: true}
	s := web(t, h)
	q := s.ask(t, "h.ask_state")
	var fields []string
	for _, f := range q.asks.Fields {
		fields = append(fields, f.FieldName+":"+f.FieldType+":"+string(f.DefaultValue))
	}
	if q.asks.Prompt != "Which branch?" || strings.Join(fields, " ") != "branch:text: force:boolean:false depth:number:" || !q.asks.Fields[0].Required {
		t.Errorf("asked: %+v", q.asks)
	}
	d := q.decide(t, form(`{"branch":"main","depth":"3"}`))
	first, err := q.bring(t.Context(), d)
	if got := textOf(first, err); got != "answered" || len(first.GetInterrupt()) > 0 {
		t.Errorf("%s %v", got, first)
	}
	again, err := q.bring(t.Context(), d) // a lost answer, asked for again
	if err != nil || !again.GetReplayed() {
		t.Errorf("again: %v %v", again, err)
	}
	want := []string{"asked", `answered:true:{"which":{"action":"accept","content":{"branch":"main","depth":3,"force":false}}}`}
	if got := h.Effects(); !slices.Equal(got, want) {
		t.Errorf("the server saw %q", got)
	}
	outcomes := []string{}
	for _, r := range audited(t, s.audit) {
		if r.Kind == audit.KindOutcome {
			outcomes = append(outcomes, r.Outcome)
		}
	}
	if !slices.Equal(outcomes, []string{audit.OutcomeAsked, audit.OutcomeOK, audit.OutcomeReplayed}) {
		t.Errorf("audit: %v", outcomes)
	}
	if log := s.log.String(); strings.Contains(log, "opaque") || strings.Contains(log, "Which branch") {
		t.Error("the question or its state is in the log")
	}
}

// A question that is dismissed goes back as cancelled, and the tool goes on as it
// likes.
func TestADismissedQuestion(t *testing.T) {
	h := &hostile.HTTP{Stateless: true}
	s := web(t, h)
	q := s.ask(t, "h.ask_state")
	if got := textOf(q.bring(t.Context(), q.decide(t, event.ResumeDecision{Dismiss: true}))); got != "answered" {
		t.Error(got)
	}
	if got := h.Effects(); got[len(got)-1] != `answered:true:{"which":{"action":"cancel"}}` {
		t.Errorf("the server saw %q", got)
	}
}

// An answer that the tool's schema does not take is not sent: the person is asked
// once more, and told why.
func TestAnAnswerThatDoesNotFitIsAskedForAgain(t *testing.T) {
	h := &hostile.HTTP{Stateless: true}
	s := web(t, h)
	q := s.ask(t, "h.ask_state")
	for n := range 2 {
		run := q.stand.RunID
		res, err := q.bring(t.Context(), q.decide(t, form(`{"branch":"main","depth":0}`)))
		must(t, err)
		if run == q.stand.RunID {
			t.Fatal("no run carries the decision")
		}
		next := q.question(t, res)
		if next.InterruptID == q.asks.InterruptID || next.Prompt != "The answer could not be used (arguments/depth: minimum). Which branch?" {
			t.Errorf("%d: asked %+v", n, next)
		}
		q.run, q.key, q.asks = q.stand.RunID, q.asks.InterruptID, next
	}
	if got := textOf(q.bring(t.Context(), q.decide(t, form(`{"branch":"main","depth":1}`)))); got != "answered" {
		t.Error(got)
	}
	if got := h.Effects(); len(got) != 2 {
		t.Errorf("the server saw %q", got)
	}
}

// A worker cannot make an answer up, change it, use it twice, or bring it to
// something else than was asked.
func TestAWorkerCannotAnswerForAPerson(t *testing.T) {
	h := &hostile.HTTP{Stateless: true}
	s := web(t, h)
	q := s.ask(t, "h.ask_state")
	before := len(h.Effects())
	_, err := q.bring(t.Context(), form(`{"branch":"main"}`)) // nobody has decided
	wantCode(t, err, fault.InterruptConflict)

	d := q.decide(t, form(`{"branch":"main"}`))
	type change = func(*fence.Envelope, *toolbrokerv1.CallToolRequest)
	for name, c := range map[string]struct {
		change change
		want   fault.Code
	}{
		"other values": {func(_ *fence.Envelope, r *toolbrokerv1.CallToolRequest) { r.Answer.Form = []byte(`{"branch":"evil"}`) }, fault.InterruptConflict},
		"dismissed": {func(_ *fence.Envelope, r *toolbrokerv1.CallToolRequest) {
			r.Answer.Form, r.Answer.Dismissed = nil, true
		}, fault.InterruptConflict},
		"other arguments":  {func(_ *fence.Envelope, r *toolbrokerv1.CallToolRequest) { r.Arguments = []byte(`{"path":"b"}`) }, fault.InterruptConflict},
		"another tool":     {func(_ *fence.Envelope, r *toolbrokerv1.CallToolRequest) { r.ToolId = "h.echo" }, fault.InterruptConflict},
		"another key":      {func(e *fence.Envelope, _ *toolbrokerv1.CallToolRequest) { e.IdempotencyKey = "call-9" }, fault.InterruptConflict},
		"another call":     {func(_ *fence.Envelope, r *toolbrokerv1.CallToolRequest) { r.Answer.ToolCallId = "call-9" }, fault.InterruptNotFound},
		"another run":      {func(_ *fence.Envelope, r *toolbrokerv1.CallToolRequest) { r.Answer.RunId = "run-9" }, fault.InterruptNotFound},
		"no form, nothing": {func(_ *fence.Envelope, r *toolbrokerv1.CallToolRequest) { r.Answer.Form = nil }, fault.InterruptConflict},
	} {
		if _, err := q.bring(t.Context(), d, c.change); fault.CodeOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := h.Effects(); len(got) != before {
		t.Errorf("the server saw %q", got)
	}
	_, err = q.bring(t.Context(), d)
	must(t, err)
	_, err = q.bring(t.Context(), d, func(e *fence.Envelope, _ *toolbrokerv1.CallToolRequest) { e.IdempotencyKey = "call-9" })
	wantCode(t, err, fault.InterruptConflict)
	q.stand.ResumeRun(t) // the next run carries another decision
	_, err = q.bring(t.Context(), d)
	wantCode(t, err, fault.InterruptConflict)
	if got := h.Effects(); len(got) != before+1 {
		t.Errorf("the server saw %q", got)
	}
}

// What a person was shown has to be what the tool asked: a worker that shows
// something harmless gets no answer to the tool.
func TestAQuestionThatWasShownOtherwise(t *testing.T) {
	h := &hostile.HTTP{Stateless: true}
	s := web(t, h)
	q := s.ask(t, "h.ask_state")
	shown := q.asks
	shown.Prompt = "Do you like herons?"
	d := form(`{"branch":"main"}`)
	q.stand.AnswerRun(t, shown, d)
	_, err := q.bring(t.Context(), d)
	wantCode(t, err, fault.InterruptConflict)
}

// A call that a person approved needs no second grant to go on with an answer; and
// the grant is not wider for it.
func TestAnApprovedCallGoesOn(t *testing.T) {
	h := &hostile.HTTP{Stateless: true}
	s := web(t, h)
	q := s.ask(t, "h.ask_state")
	q.approve = []string{"h.ask_state"} // from now on the agent's policy wants one
	d := q.decide(t, form(`{"branch":"main"}`))
	if got := textOf(q.bring(t.Context(), d)); got != "answered" {
		t.Error(got)
	}
	_, err := q.bring(t.Context(), d, func(e *fence.Envelope, r *toolbrokerv1.CallToolRequest) { e.IdempotencyKey, r.Answer = "call-2", nil })
	wantCode(t, err, fault.ApprovalRequired)
}

// In a revision before that a server asks in the midst of a call, which cannot
// wait: it is told that the question is cancelled. What the operator marked as
// repeatable is called again with the answer; anything else is not, and its answer
// is what the tool made of the cancel.
func TestAQuestionInTheMidstOfACall(t *testing.T) {
	for name, over := range map[string]string{"stdio": "a.", "http": "h."} {
		t.Run(name, func(t *testing.T) {
			h := &hostile.HTTP{}
			effects := filepath.Join(t.TempDir(), "effects")
			s := newSession(t, asking(t, h, over, effects, false), asking(t, h, "r"+over, effects, true))
			saw := func() []string { return append(h.Effects(), hostile.Effects(t, effects)...) }
			s.grants.allow(t, subject, authz.ToolID(over+"ask_midway"), authz.ToolID("r"+over+"ask_midway"))
			wait(t, func() bool {
				found, _ := s.service.catalogue.List([]string{over + "*", "r" + over + "*"})
				return len(found) == 2
			})

			res, err := s.call(t, over+"ask_midway", `{}`)
			if got := string(res.GetResult()); err != nil || res.GetIsError() || len(res.GetInterrupt()) > 0 ||
				!strings.Contains(got, "it was told that the question is cancelled") || !strings.Contains(got, `{\"action\":\"cancel\"}`) {
				t.Errorf("%s %v", got, err)
			}
			if got := saw(); !slices.Equal(got, []string{"before", `after:{"action":"cancel"}`}) {
				t.Errorf("effects: %q", got)
			}

			q := s.ask(t, "r"+over+"ask_midway")
			if q.asks.Prompt != "Which branch?" {
				t.Errorf("asked: %+v", q.asks)
			}
			if got := textOf(q.bring(t.Context(), q.decide(t, form(`{"branch":"main"}`)))); got != `{"action":"accept","content":{"branch":"main","force":false}}` {
				t.Error(got)
			}
			if got := saw(); len(got) != 6 {
				t.Errorf("effects: %q", got)
			}
		})
	}
}

// asking is a hostile server that asks, as a namespace that ends with a dot.
func asking(t *testing.T, h *hostile.HTTP, namespace, effects string, repeatable bool) catalogue.Server {
	t.Helper()
	server := catalogue.Server{
		Namespace: strings.TrimSuffix(namespace, "."), Transport: catalogue.TransportStdio, Command: hostile.Command(t, "-effects", effects),
		Tools: []string{"ask_midway"}, ToolOptions: map[string]catalogue.ToolOptions{"ask_midway": {Idempotent: repeatable}},
	}
	if strings.HasSuffix(namespace, "h.") {
		h.SetToolsQuietly(hostile.HTTPList())
		server.Transport, server.Command, server.URL = catalogue.TransportHTTP, nil, h.Serve(t)
		server.Egress = &catalogue.Egress{AllowCIDRs: []string{"127.0.0.1/32"}}
	}
	return server
}

// Over stdio nothing says in which call a server asks. With two under way nobody
// is asked: what concerns one user is never shown to another.
func TestAQuestionThatMayBeAnotherUsers(t *testing.T) {
	effects := filepath.Join(t.TempDir(), "effects")
	s := newSession(t, catalogue.Server{
		Namespace: "a", Transport: catalogue.TransportStdio, Command: hostile.Command(t, "-effects", effects), Tools: []string{"ask_slowly", "hang"},
		ReadOnly: true, Timeout: "60s",
	})
	s.grants.allow(t, subject, authz.ToolID("a.ask_slowly"), authz.ToolID("a.hang"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = s.callAs(ctx, s.stand.Envelope(), "a.hang", `{}`) }()
	wait(t, func() bool { return len(hostile.Effects(t, effects)) == 1 }) // the server has it
	res, err := s.call(t, "a.ask_slowly", `{}`)
	if err != nil || len(res.GetInterrupt()) > 0 || !strings.Contains(string(res.GetResult()), `{\"action\":\"cancel\"}`) {
		t.Errorf("with another call under way: %v %v", res, err)
	}
	cancel()
	<-ended
	// The server still works on what was given up, and may ask on its behalf.
	res, err = s.call(t, "a.ask_slowly", `{}`)
	if err != nil || len(res.GetInterrupt()) > 0 {
		t.Errorf("with an abandoned call: %v %v", res, err)
	}
}

// Sampling is refused by default and roots are not offered, whatever a server asks
// for, in a call or as its result; and what is no question by form is none.
func TestNothingElseIsOffered(t *testing.T) {
	h := &hostile.HTTP{Stateless: true}
	s := web(t, h)
	wait(t, func() bool { _, err := s.call(t, "h.echo", `{}`); return err == nil })
	res, err := s.call(t, "h.ask_for_model", `{}`)
	if err != nil || !res.GetIsError() || len(res.GetInterrupt()) > 0 || !strings.Contains(string(res.GetResult()), "asks for input from the user, which it cannot be given") {
		t.Errorf("%v %v", res, err)
	}

	s = newSession(t, catalogue.Server{Namespace: "a", Transport: catalogue.TransportStdio, Command: hostile.Command(t), Tools: []string{"ask_everything"}, ReadOnly: true})
	s.grants.allow(t, subject, authz.ToolID("a.ask_everything"))
	wait(t, func() bool { found, _ := s.service.catalogue.List([]string{"a.*"}); return len(found) == 1 })
	got := textOf(s.call(t, "a.ask_everything", `{}`))
	for _, want := range []string{
		`sampling/createMessage={"code":-32601,"message":"not offered"}`, `roots/list={"code":-32601,"message":"not offered"}`,
		`elicitation/create={"action":"cancel"}`, `ping={}`, "told that the question is cancelled",
	} {
		if res, err := s.call(t, "a.ask_everything", `{}`); err != nil || !strings.Contains(strings.ReplaceAll(string(res.GetResult()), `\"`, `"`), want) {
			t.Errorf("%s is not in %s %v", want, got, err)
		}
	}
}

// Progress keeps a call alive that would otherwise be given up for its silence, and
// is counted; no progress prolongs the call's timeout.
func TestProgressKeepsACallAlive(t *testing.T) {
	s := newSession(t, catalogue.Server{
		Namespace: "a", Transport: catalogue.TransportStdio, Command: hostile.Command(t), Tools: []string{"progress", "hang"}, ReadOnly: true,
		Timeout: "60s", IdleTimeout: "3s", // the tool goes on for four seconds and more
	}, catalogue.Server{
		Namespace: "b", Transport: catalogue.TransportStdio, Command: hostile.Command(t), Tools: []string{"progress"}, ReadOnly: true,
		Timeout: "2s", IdleTimeout: "1.9s",
	})
	s.grants.allow(t, subject, authz.ToolID("a.progress"), authz.ToolID("a.hang"), authz.ToolID("b.progress"))
	wait(t, func() bool { found, _ := s.service.catalogue.List([]string{"a.*", "b.*"}); return len(found) == 3 })
	if got := textOf(s.call(t, "a.progress", `{}`)); got != "done" {
		t.Error(got)
	}
	if !strings.Contains(s.log.String(), `"progress":40`) {
		t.Error("progress is not counted")
	}
	for _, tool := range []string{"a.hang", "b.progress"} {
		begin := time.Now()
		_, err := s.call(t, tool, `{}`)
		wantCode(t, err, fault.ToolOutcomeUnknown)
		if time.Since(begin) > 30*time.Second {
			t.Errorf("%s: given up after %v", tool, time.Since(begin))
		}
	}
}

// The broker itself stops what is admitted when a run ends, although its worker
// says nothing, and the server is told.
func TestACallEndsWithItsRun(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *session){
		"its end is decided": func(t *testing.T, s *session) {
			t.Helper()
			_, err := s.stand.Writer.SetEnd(t.Context(), s.stand.Grant(t, s.stand.Envelope()), binding.End{Kind: binding.EndCancelling, Reason: "client_request"})
			must(t, err)
		},
		"its lease is replaced": func(t *testing.T, s *session) { t.Helper(); s.stand.Replace(t) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t)
			ended := make(chan error, 1)
			go func() {
				_, err := s.callAs(t.Context(), s.stand.Envelope(), "x.hang", `{}`)
				ended <- err
			}()
			wait(t, func() bool { return len(s.count(t)) == 1 })
			end(t, s)
			wantCode(t, <-ended, fault.ToolOutcomeUnknown)
			wait(t, func() bool { return strings.Join(s.count(t), " ") == "hang cancelled" })
		})
	}
}
