package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/conformance/internal/rpc/brokers"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/middleware"
	"cofferdam.dev/services/worker/internal/workerclient"
)

// The tools of the suite, for setups.
const (
	echo     = brokers.Echo
	slow     = brokers.Slow
	failTool = brokers.Fail
	down     = brokers.Down
	denied   = brokers.Denied
	write    = brokers.Write
	delegate = brokers.Delegate
)

// calls are fixtures of tool calls.
func calls() []fixture {
	return []fixture{
		{
			name: "tool call", run: (*bench).toolCall,
			keys: []string{"tool.mcp", "tool.caller_credentials", "observability.metrics", "observability.tracing", "observability.trace_propagation"},
		},
		{name: "parallel calls", run: (*bench).parallel},
		{name: "failing tool", run: (*bench).failing},
		{name: "denied tool", keys: []string{"middleware.portable"}, run: (*bench).deniedTool},
		{name: "unavailable tool", keys: []string{"tool.partial_availability"}, run: (*bench).unavailable},
		{name: "lost answer of a tool", run: (*bench).lostAnswer},
		{name: "delegated work", run: (*bench).delegated},
		{name: "subagent", keys: []string{"subagents"}, optional: true, run: (*bench).subagent},
	}
}

// acted are the calls that tools saw, without their ids.
func (b *bench) acted() []string {
	var out []string
	for _, a := range b.brokers.Acted() {
		_, call, _ := strings.Cut(a, " ")
		out = append(out, call)
	}
	return out
}

func (b *bench) wantActed(want ...string) {
	b.Helper()
	got := b.acted()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.Errorf("the tools saw %q, want %q", got, want)
	}
}

func (b *bench) toolCall() {
	watched := b.watch()
	got := b.worker().turn(Intent{Calls: []Call{{echo, `{"text":"hi"}`}}, Then: "That was it."})
	b.wantFinished(got)
	b.wantActed(echo + ` {"text":"hi"}`)
	b.wantText(got, "echo of", "That was it.")
	started, finished := of[event.ToolStarted](got), of[event.ToolFinished](got)
	if len(started) != 1 || len(finished) != 1 || started[0].ToolName != echo || started[0].ToolCallID != finished[0].ToolCallID {
		b.Errorf("events: %s", got.types())
	}
	if !strings.HasPrefix(b.brokers.Acted()[0], started[0].ToolCallID+" ") {
		b.Errorf("the event names the call %s, the broker %s", started[0].ToolCallID, b.brokers.Acted()[0])
	}
	b.wantCredential(got)
	watched.judge()
}

// wantCredential checks that a tool was called with its caller's own credential,
// and that nothing within the sandbox has seen that.
func (b *bench) wantCredential(got events) {
	b.Helper()
	credential := brokers.CredentialOf(b.stand.Record(b.T).Identity.Subject)
	if all := b.brokers.Credentials(); len(all) != 1 || all[0] != credential {
		b.Errorf("the tool was called with %q, and the caller has %q", all, credential)
	}
	for _, e := range got {
		text, err := event.Encode(e)
		b.must(err)
		if strings.Contains(string(text), credential) {
			b.Errorf("the credential is in %s", text)
		}
	}
	if b.logs.has(credential) || b.brokers.Asked(credential) >= 0 {
		b.Error("the credential is in the log, or the model was told of it")
	}
	b.only("tool.caller_credentials", harness.Emulated) // the broker added it
}

func (b *bench) parallel() {
	var i Intent
	var want []string
	for n := range 3 {
		args := fmt.Sprintf(`{"text":"%d"}`, n)
		i.Calls = append(i.Calls, Call{echo, args})
		want = append(want, echo+" "+args)
	}
	i.Then = "All done."
	got := b.worker().turn(i)
	b.wantFinished(got)
	b.wantActed(want...)
	b.wantText(got, "All done.")
	if len(of[event.ToolStarted](got)) != 3 || len(of[event.ToolFinished](got)) != 3 {
		b.Errorf("events: %s", got.types())
	}
}

// failing: that a tool failed is for the model, and no end of the run.
func (b *bench) failing() {
	got := b.worker().turn(Intent{Calls: []Call{{failTool, `{}`}}, Then: "I went on."})
	b.wantFinished(got)
	b.wantText(got, "it did not work", "I went on.")
	if len(of[event.ToolStarted](got)) != 1 || len(of[event.ToolFinished](got))+len(of[event.ToolError](got)) != 1 {
		b.Errorf("events: %s", got.types())
	}
}

// deniedTool is refused by the broker, and another one by the middleware of the
// binding, which the broker is not asked about.
func (b *bench) deniedTool() {
	b.change = func(r *workerclient.Bind) {
		r.Middleware = []middleware.Step{{Name: "tool_deny", Options: json.RawMessage(`{"tool_ids":["` + failTool + `"]}`)}}
	}
	b.refused(fault.ToolDenied, denied, failTool)
	b.only("middleware.portable", harness.Emulated) // the worker put it around the harness
}

func (b *bench) unavailable() { b.refused(fault.ToolUnavailable, down) }

func (b *bench) refused(code fault.Code, tools ...string) {
	b.Helper()
	i := Intent{Calls: []Call{{echo, `{"text":"hi"}`}}, Then: "I went on."}
	for _, tool := range tools {
		i.Calls = append(i.Calls, Call{tool, `{}`})
	}
	got := b.worker().turn(i)
	b.wantFinished(got)
	b.wantText(got, "I went on.")
	b.wantActed(echo + ` {"text":"hi"}`)
	errs := of[event.ToolError](got)
	if len(errs) != len(tools) {
		b.Errorf("the calls ended as %+v", errs)
	}
	for _, err := range errs {
		if err.Code != string(code) || err.Message != code.Message() {
			b.Errorf("a call ended as %+v", err)
		}
	}
}

// lostAnswer: a call whose answer is lost happens once.
func (b *bench) lostAnswer() {
	left := 1
	b.brokers.Lose(func(procedure string) bool {
		if procedure == "CallTool" && left > 0 {
			left--
			return true
		}
		return false
	})
	got := b.worker().turn(Intent{Calls: []Call{{echo, `{"text":"once"}`}}, Then: "Done."})
	b.wantFinished(got)
	b.wantActed(echo + ` {"text":"once"}`)
}

// delegated is the work of another agent: it stands in a namespace of the call, and
// between the call's two ends, whatever harness made it.
func (b *bench) delegated() {
	got := b.worker().turn(Intent{Calls: []Call{{delegate, `{"text":"work"}`}}, Then: "It is done."})
	b.wantFinished(got)
	b.wantText(got, "It is done.")
	b.wantActed(delegate + ` {"text":"work"}`)
	var call string
	var seen []event.Type
	for _, e := range got {
		switch d := e.Data.(type) {
		case event.ToolStarted:
			if d.ToolName == delegate {
				call = d.ToolCallID
			}
		case event.ToolFinished:
			if d.ToolCallID == call {
				call = ""
			}
		}
		if len(e.Namespace) == 0 {
			continue
		}
		seen = append(seen, e.Type())
		if len(e.Namespace) != 1 || e.Namespace[0] != call {
			b.Errorf("%s stands in %v; the call is %q", e.Type(), e.Namespace, call)
		}
	}
	want := []event.Type{
		event.TypeNamespaceEntered, event.TypeTextStarted, event.TypeTextDelta, event.TypeTextFinished,
		event.TypeToolStarted, event.TypeToolFinished, event.TypeNamespaceExited,
	}
	if !slices.Equal(seen, want) {
		b.Errorf("the agent's events are %v", seen)
	}
}

func (b *bench) subagent() {
	got := b.worker().turn(Intent{Delegate: &Call{echo, `{"text":"below"}`}, Then: "Delegated."})
	b.wantFinished(got)
	b.wantText(got, "Delegated.")
	b.wantActed(echo + ` {"text":"below"}`)
	if len(of[event.NamespaceEntered](got)) != 1 || len(of[event.NamespaceExited](got)) != 1 {
		b.Errorf("events: %s", got.types())
	}
	for _, e := range got {
		if s, ok := e.Data.(event.ToolStarted); ok && s.ToolName == echo && len(e.Namespace) != 1 {
			b.Errorf("the call of the subagent stands in %v", e.Namespace)
		}
	}
	// Its own loop asks the model, between what the root asks before and after it.
	if b.brokers.ModelCalls() < 3 {
		b.only("subagents", harness.Emulated)
	}
}
