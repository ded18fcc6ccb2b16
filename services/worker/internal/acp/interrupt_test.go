package acp_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

func decide(i event.InterruptRequested, d event.Decision) []harness.ToolDecision {
	out := make([]harness.ToolDecision, 0, len(i.ToolApprovals))
	for _, a := range i.ToolApprovals {
		out = append(out, harness.ToolDecision{ToolCallID: a.ToolCallID, Decision: d})
	}
	return out
}

const askBash = `ask t1 bash execute {"command":"rm x","n":9007199254740993}`

func TestAQuestionBecomesAnInterrupt(t *testing.T) {
	for name, tc := range map[string]struct {
		decision event.Decision
		chose    string
		end      event.Type
	}{
		"approved":  {event.DecisionApprove, "[selected yes]", event.TypeToolFinished},
		"rejected":  {event.DecisionReject, "[selected no]", event.TypeToolError},
		"dismissed": {"", "[selected no]", event.TypeToolError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			done := `raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"removed"}}]}}}`
			o := s.run(t, "run-1", lines("text before", askBash, done, "model x"))
			i := o.wantInterrupt(t)
			if len(i.ToolApprovals) != 1 || i.AgentID != "agent" {
				t.Fatalf("interrupt %+v", i)
			}
			a := i.ToolApprovals[0]
			if a.ToolName != "agent.bash" || a.ToolArgs != `{"command":"rm x","n":9007199254740993}` {
				t.Errorf("approval %+v", a)
			}
			if !slices.Equal(a.AllowedDecisions, []event.Decision{event.DecisionApprove, event.DecisionReject}) {
				t.Errorf("decisions %v", a.AllowedDecisions)
			}
			if s.world.archived != 1 || !s.world.frozen {
				t.Errorf("archived %d times, frozen %v", s.world.archived, s.world.frozen)
			}
			if strings.Contains(o.text(), "selected") {
				t.Error("the agent went on while a person was asked")
			}
			var d []harness.ToolDecision
			if tc.decision != "" {
				d = decide(i, tc.decision)
			}
			o = s.resume(t, "run-2", o, d...)
			o.wantFinished(t, "end_turn")
			if len(s.world.started) != 1 {
				t.Error("the agent was started again")
			}
			if !strings.HasPrefix(o.text(), tc.chose) {
				t.Errorf("text %q", o.text())
			}
			ends := slices.DeleteFunc(slices.Clone(o.events), func(e event.Event) bool {
				return e.Type() != event.TypeToolFinished && e.Type() != event.TypeToolError
			})
			if len(ends) != 1 || ends[0].Type() != tc.end {
				t.Fatalf("events %s", o.types())
			}
			if e, ok := ends[0].Data.(event.ToolError); ok && (e.Code != string(fault.ToolDenied) || e.ToolCallID != a.ToolCallID) {
				t.Errorf("error %+v", e)
			}
			if len(of[event.ToolStarted](o.recorder)) > 0 {
				t.Error("a call was started twice")
			}
			s.run(t, "run-3", "text z").wantFinished(t, "end_turn")
		})
	}
}

// A worker that has never seen the run loads the session, and lets exactly what
// was approved pass, once.
func TestAnInterruptIsAnsweredInANewWorker(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", lines(askBash, "model x"))
	i := o.wantInterrupt(t)
	n := s.newWorker(t)
	o2 := n.resume(t, "run-2", o, decide(i, event.DecisionApprove)...)
	o2.wantFinished(t, "end_turn")
	session := n.session(t)
	if !strings.Contains(session, "Approved: bash with the arguments") || !strings.Contains(session, "Make exactly this call now") {
		t.Errorf("the agent was told %s", session)
	}
	if e := of[event.ToolError](o2.recorder); len(e) != 1 || e[0].Code != string(fault.Cancelled) || e[0].ToolCallID != i.ToolApprovals[0].ToolCallID {
		t.Errorf("an approved call that was not made ended as %+v", e)
	}
}

// afterwards is what the agent does when it is told of a decision.
func (s *stand) afterwards(script ...string) { s.preset.Env["AFTER"] = lines(script...) }

// An own tool's call passes once as well, and only with what was approved.
func TestOnlyTheApprovedCallPasses(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", askBash)
	i := o.wantInterrupt(t)
	s.afterwards(askBash, `ask t2 bash execute {"command":"rm y"}`)
	n := s.newWorker(t)
	o2 := n.resume(t, "run-2", o, decide(i, event.DecisionApprove)...)
	second := o2.wantInterrupt(t)
	if o2.text() != "[selected yes]" {
		t.Errorf("text %q", o2.text())
	}
	if len(second.ToolApprovals) != 1 || second.ToolApprovals[0].ToolArgs != `{"command":"rm y"}` {
		t.Errorf("the second question was %+v", second)
	}
}

func TestACallThatNeedsApproval(t *testing.T) {
	for name, tc := range map[string]struct {
		decision  event.Decision
		arguments string // of the edit
		then      []string
		called    []string
		text      string
		asks      bool
	}{
		"approved":          {event.DecisionApprove, "", []string{`mcp fs_write {"n":1.0,"path":"a"}`}, []string{`{"path":"a","n":1.0}`}, "[done error=false]", false},
		"approved, another": {event.DecisionApprove, "", []string{`mcp fs_write {"path":"b","n":1.0}`}, nil, "", true},
		"approved, twice":   {event.DecisionApprove, "", []string{`mcp fs_write {"path":"a","n":1.0}`, `mcp fs_write {"path":"a","n":1.0}`}, []string{`{"path":"a","n":1.0}`}, "[done error=false]", true},
		"edited":            {event.DecisionEdit, `{"path":"c"}`, []string{`mcp fs_write {"path":"c"}`}, []string{`{"path":"c"}`}, "[done error=false]", false},
		"edited, as before": {event.DecisionEdit, `{"path":"c"}`, []string{`mcp fs_write {"path":"a","n":1.0}`}, []string{`{"path":"c"}`}, "[done error=false]", false},
		"rejected":          {event.DecisionReject, "", []string{"text ok"}, nil, "ok", false},
		"rejected, insists": {event.DecisionReject, "", []string{`mcp fs_write {"path":"a","n":1.0}`}, nil, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			s.afterwards(tc.then...)
			o := s.run(t, "run-1", `mcp fs_write {"path":"a","n":1.0}`)
			i := o.wantInterrupt(t)
			a := i.ToolApprovals[0]
			if a.ToolName != "fs.write" || a.ToolArgs != `{"path":"a","n":1.0}` {
				t.Fatalf("approval %+v", a)
			}
			d := decide(i, tc.decision)
			if tc.arguments != "" {
				d[0].Arguments = json.RawMessage(tc.arguments)
			}
			o = s.newWorker(t).resume(t, "run-2", o, d...)
			must(t, o.err)
			var called []string
			for _, c := range s.tools.called() {
				called = append(called, string(c.Arguments))
				if c.CallID != a.ToolCallID {
					t.Error("the approved call was made under another id")
				}
			}
			same := func(a, b string) bool { return a == b || strings.Count(a, ",") == 1 && strings.Count(b, ",") == 1 }
			if !slices.EqualFunc(called, tc.called, same) {
				t.Errorf("the broker was called %q", called)
			}
			if tc.text != "" && !strings.HasPrefix(o.text(), tc.text) {
				t.Errorf("text %q", o.text())
			}
			// Whatever else the agent wanted is another question.
			asked := len(of[event.InterruptRequested](o.recorder)) == 1
			if asked != tc.asks {
				t.Errorf("asked again: %v, want %v: %s", asked, tc.asks, o.types())
			}
		})
	}
}

// A question about an offered tool that needs an approval is held open; then the
// call itself passes at the endpoint, with what the person made of it.
func TestAQuestionAboutAnOfferedTool(t *testing.T) {
	ask := `ask t1 mcp__cofferdam__fs_write other {"path":"a"}`
	for name, tc := range map[string]struct {
		decision  event.Decision
		arguments string
		called    string
	}{
		"approved": {event.DecisionApprove, "", `{"path":"a"}`},
		"edited":   {event.DecisionEdit, `{"path":"b"}`, `{"path":"b"}`},
		"rejected": {event.DecisionReject, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			script := []string{ask}
			if tc.called != "" {
				script = append(script, `mcp fs_write {"path":"a"}`)
			}
			o := s.run(t, "run-1", lines(script...))
			i := o.wantInterrupt(t)
			a := i.ToolApprovals[0]
			if a.ToolName != "fs.write" || a.ToolArgs != `{"path":"a"}` || !slices.Contains(a.AllowedDecisions, event.DecisionEdit) {
				t.Fatalf("approval %+v", a)
			}
			d := decide(i, tc.decision)
			if tc.arguments != "" {
				d[0].Arguments = json.RawMessage(tc.arguments)
			}
			o = s.resume(t, "run-2", o, d...)
			o.wantFinished(t, "end_turn")
			calls := s.tools.called()
			if tc.called == "" {
				if len(calls) > 0 || len(of[event.ToolError](o.recorder)) != 1 {
					t.Errorf("calls %+v, events %s", calls, o.types())
				}
				return
			}
			if len(calls) != 1 || string(calls[0].Arguments) != tc.called || calls[0].CallID != a.ToolCallID {
				t.Errorf("calls %+v", calls)
			}
			if f := of[event.ToolFinished](o.recorder); len(f) != 1 || f[0].ToolCallID != a.ToolCallID {
				t.Errorf("events %s", o.types())
			}
		})
	}
}

func TestQuestionsThatNobodyIsAsked(t *testing.T) {
	brokered := `ask t1 cofferdam_fs_read other {"path":"a"}`
	disguised := `ask t1 cofferdam_fs_read execute {"command":"rm -r ."}`
	for name, tc := range map[string]struct {
		ask     string
		allow   bool // the preset
		persons bool // the construction
		want    string
	}{
		"an offered tool":              {brokered, false, false, "[selected yes]"},
		"an offered tool, with people": {brokered, false, true, "[selected yes]"},
		"an own tool, no people":       {askBash, false, false, "[selected no]"},
		"an own tool, allowed":         {askBash, true, true, "[selected yes]"},
		"a command called like a tool": {disguised, false, false, "[selected no]"},
		"arguments of doubled keys":    {`ask t1 bash execute {"command":"a","command":"b"}`, false, true, "[selected no]"},
		"needs approval, no people":    {`ask t1 cofferdam_fs_write other {"path":"a"}`, false, false, "[selected no]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, func(s *stand) {
				s.build.Interrupts.ToolApproval = tc.persons
				if tc.allow {
					s.preset.Permission = "allow"
				}
			})
			o := s.run(t, "run-1", lines(tc.ask, "stop cancelled"))
			if tc.want == "[selected no]" {
				// An agent may end its turn after a no, in whatever words.
				o.wantFinished(t, "tool_denied")
			} else {
				o.wantError(t, fault.Protocol)
			}
			if o.text() != tc.want {
				t.Errorf("text %q", o.text())
			}
		})
	}
	s := newStand(t, func(s *stand) { s.build.Interrupts.ToolApproval = false })
	o := s.run(t, "run-1", `mcp fs_write {"path":"a"}`)
	o.wantFinished(t, "end_turn")
	if e := of[event.ToolError](o.recorder); len(e) != 1 || e[0].Code != string(fault.ApprovalRequired) || len(s.tools.called()) > 0 {
		t.Errorf("events %s", o.types())
	}
}

func TestSeveralQuestionsAreOneInterrupt(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", lines(
		`askagain t1 bash execute {"command":"a"}`, `askagain t2 bash execute {"command":"b"}`, `askagain t1 bash execute {"command":"a"}`,
		`askagain t3 cofferdam_fs_write other {"path":"c"}`, "answers"))
	i := o.wantInterrupt(t)
	if len(i.ToolApprovals) != 3 {
		t.Fatalf("approvals %+v", i.ToolApprovals)
	}
	d := decide(i, event.DecisionApprove)
	d[1].Decision = event.DecisionReject
	rejected := i.ToolApprovals[1].ToolArgs
	o = s.resume(t, "run-2", o, d...)
	o.wantFinished(t, "end_turn")
	if strings.Count(o.text(), "yes") < 2 || !strings.Contains(o.text(), "no") {
		t.Errorf("text %q after %s was rejected", o.text(), rejected)
	}
}

// A broker that wants an approval which the construction does not know of is asked
// about as well.
func TestTheBrokerWantsAnApproval(t *testing.T) {
	s := newStand(t)
	s.tools.answer = func(_ context.Context, _ harness.ToolCall) (harness.ToolResult, error) {
		return harness.ToolResult{}, fault.New(fault.ApprovalRequired, "test")
	}
	o := s.run(t, "run-1", `mcp fs_read {"path":"a"}`)
	if i := o.wantInterrupt(t); i.ToolApprovals[0].ToolName != "fs.read" {
		t.Errorf("interrupt %+v", i)
	}
}

// An interrupt that was never committed leaves no agent behind.
func TestAnInterruptThatCannotBeCommitted(t *testing.T) {
	s := newStand(t)
	s.thread.commitErr = fault.New(fault.RevisionConflict, "test")
	o := s.run(t, "run-1", askBash)
	o.wantError(t, fault.RevisionConflict)
	if s.world.running() {
		t.Error("the agent is still there")
	}
}

func TestAWorldThatCannotBeStopped(t *testing.T) {
	s := newStand(t, func(s *stand) { s.world.noFreeze = true })
	o := s.run(t, "run-1", askBash)
	i := o.wantInterrupt(t)
	if s.world.running() || s.world.archived != 1 {
		t.Error("the agent was archived while it runs")
	}
	s.resume(t, "run-2", o, decide(i, event.DecisionReject)...).wantFinished(t, "end_turn")
}

// An agent may ask about less than it told before: a person decides on all that was
// shown of the call. The same question for the same call is recognized in a new
// worker, under the id of the approved call.
func TestAQuestionAboutAPartOfTheArguments(t *testing.T) {
	s := newStand(t)
	script := []string{
		`raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":{"sessionUpdate":"tool_call","toolCallId":"t1","title":"bash","status":"pending","rawInput":{"cwd":"/w"}}}}`,
		`raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"pending","rawInput":{"cwd":"/w","command":"ls"}}}}`,
		`ask t1 ls execute {"command":"ls"}`,
		`raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed","rawOutput":"out"}}}`,
	}
	o := s.run(t, "run-1", lines(script...))
	i := o.wantInterrupt(t)
	started, args := of[event.ToolStarted](o.recorder), of[event.ToolArgumentsDelta](o.recorder)
	if len(started) != 1 || started[0].ToolName != "agent.bash" || started[0].Arguments != event.EmptyObject {
		t.Fatalf("started %+v", started)
	}
	if len(args) != 1 || args[0].Delta != `{"cwd":"/w","command":"ls"}` || string(i.ToolApprovals[0].ToolArgs) != args[0].Delta {
		t.Fatalf("arguments %+v, approvals %+v", args, i.ToolApprovals)
	}
	s.afterwards(script...)
	o = s.newWorker(t).resume(t, "run-2", o, decide(i, event.DecisionApprove)...)
	o.wantFinished(t, "end_turn")
	if f := of[event.ToolFinished](o.recorder); len(f) != 1 || f[0].ToolCallID != i.ToolApprovals[0].ToolCallID || o.text() != "[selected yes]" {
		t.Errorf("finished %+v, text %q", f, o.text())
	}
}

// What is approved is what was shown. A question about other arguments than the
// call was started with is one about another call, whatever the agent says.
func TestAQuestionAboutOtherArguments(t *testing.T) {
	const shown = `raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":{"sessionUpdate":"tool_call","toolCallId":"t1","title":"bash","status":"in_progress","rawInput":{"command":"ls"}}}}`
	s := newStand(t)
	o := s.run(t, "run-1", lines(shown, `ask t1 bash execute {"command":"rm -r ."}`))
	i := o.wantInterrupt(t)
	started, failed := of[event.ToolStarted](o.recorder), of[event.ToolError](o.recorder)
	if len(started) != 2 || len(failed) != 1 || len(i.ToolApprovals) != 1 {
		t.Fatalf("events %s", o.types())
	}
	a := i.ToolApprovals[0]
	if a.ToolArgs != `{"command":"rm -r ."}` || a.ToolArgs != started[1].Arguments || a.ToolCallID != started[1].ToolCallID || failed[0].ToolCallID != started[0].ToolCallID {
		t.Errorf("started %+v, ended %+v, asked about %+v", started, failed, a)
	}
	o = s.resume(t, "run-2", o, decide(i, event.DecisionReject)...)
	if o.text() != "[selected no]" {
		t.Errorf("text %q", o.text())
	}
}

// A call that was decided on is not asked about again: what the agent wants to know
// of it then is about another call.
func TestAQuestionAboutACallThatWasDecidedOn(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", lines(askBash, `ask t1 bash execute {"command":"rm y"}`, "model x"))
	first := o.wantInterrupt(t)
	o = s.resume(t, "run-2", o, decide(first, event.DecisionApprove)...)
	second := o.wantInterrupt(t)
	if len(second.ToolApprovals) != 1 || second.ToolApprovals[0].ToolCallID == first.ToolApprovals[0].ToolCallID || second.ToolApprovals[0].ToolArgs != `{"command":"rm y"}` {
		t.Fatalf("the second question was %+v", second)
	}
	o = s.resume(t, "run-3", o, decide(second, event.DecisionReject)...)
	o.wantFinished(t, "end_turn")

	// The broker may want another decision on a call that a person has allowed.
	s = newStand(t)
	s.tools.answer = func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
		return harness.ToolResult{}, fault.New(fault.ApprovalRequired, "test")
	}
	s.afterwards(`mcp fs_write {"path":"a"}`)
	o = s.run(t, "run-1", `mcp fs_write {"path":"a"}`)
	i := o.wantInterrupt(t)
	o = s.newWorker(t).resume(t, "run-2", o, decide(i, event.DecisionApprove)...)
	o.wantFinished(t, "end_turn")
	if e := of[event.ToolError](o.recorder); len(e) != 1 || e[0].Code != string(fault.ApprovalRequired) || e[0].ToolCallID != i.ToolApprovals[0].ToolCallID {
		t.Errorf("events %s", o.types())
	}
}

// Of a question without arguments a person cannot decide: the call itself is asked
// about when it comes.
func TestAQuestionWithoutArguments(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", lines(`ask t1 cofferdam_fs_write other {}`, `mcp fs_write {"path":"a"}`))
	i := o.wantInterrupt(t)
	if len(i.ToolApprovals) != 1 || i.ToolApprovals[0].ToolArgs != `{"path":"a"}` || o.text() != "[selected yes]" {
		t.Errorf("approvals %+v, text %q", i.ToolApprovals, o.text())
	}
	if len(s.tools.called()) > 0 {
		t.Error("the tool was called")
	}
}
