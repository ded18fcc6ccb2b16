package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventtest"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/toolbroker/internal/call"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const callID = "call-1"

// fake gives the events of one run.
type fake struct {
	events []event.Event
	// err in place of a run; end after the events.
	err, end error
	asked    []string
	closed   bool
}

func (f *fake) Delegate(_ context.Context, env fence.Envelope, agentID, message string) (Run, error) {
	f.asked = append(f.asked, env.RunID+" "+env.IdempotencyKey+" "+agentID+" "+message)
	if f.err != nil {
		return nil, f.err
	}
	return f, nil
}

func (*fake) ID() string        { return "run-2" }
func (*fake) AgentName() string { return "Helper" }
func (f *fake) Close() error    { f.closed = true; return nil }

func (f *fake) Next() (event.Event, error) {
	if len(f.events) == 0 {
		return event.Event{}, f.end
	}
	e := f.events[0]
	f.events = f.events[1:]
	return e, nil
}

// parent is the run in which the agent's work is told, with the call open.
func parent(t interface{ Fatal(args ...any) }) *event.Machine {
	m := event.NewMachine("run-1", "conversation-1", event.Bounds{})
	for _, d := range []event.Data{
		event.RunStarted{HarnessID: "native", AdapterVersion: "1"},
		event.ToolStarted{ToolCallID: callID, ToolName: "builtin.delegate", Arguments: event.EmptyObject},
	} {
		if err := m.Accept(m.Stamp(event.Draft{Data: d}, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// within is the call of a test, with what it was told.
func within(told *[]event.Draft) context.Context {
	return call.NewWithin(context.Background(), call.Within{
		Envelope: fence.Envelope{BindingID: "hs_x", RunID: "run-1", IdempotencyKey: callID},
		Tell:     func(e event.Event) { *told = append(*told, e.Draft()) },
	})
}

func run(ctx context.Context, f *fake) (mcpcall.Answer, error) {
	return New(f).Call(ctx, Tool, json.RawMessage(`{"agent_id":"helper","message":"work"}`), time.Now().Add(time.Minute))
}

// Whatever a run is, what is told of it is lawful in the run that delegates, and
// leaves nothing open there: also where the run breaks off in its midst.
func TestWhatIsToldIsLawful(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := eventtest.Run().Draw(t, "run")
		cut := rapid.IntRange(0, len(events)).Draw(t, "cut")
		f := &fake{events: slices.Clone(events[:cut]), end: io.ErrUnexpectedEOF}
		var told []event.Draft
		answer, err := run(within(&told), f)
		if whole := cut == len(events); whole != (err == nil) {
			t.Fatalf("%d of %d events: %v", cut, len(events), err)
		}
		if err != nil && !errors.Is(err, mcpcall.ErrNoAnswer) {
			t.Fatalf("a run that broke off: %v", err)
		}
		if !f.closed {
			t.Fatal("the stream was left open")
		}
		m := parent(t)
		for _, d := range told {
			if len(d.Namespace) == 0 || d.Namespace[0] != callID {
				t.Fatalf("%s stands in %v", d.Data.Type(), d.Namespace)
			}
			if err := m.Accept(m.Stamp(d, time.Now())); err != nil {
				t.Fatalf("%+v: %v", d, err)
			}
		}
		end := event.Draft{Data: event.ToolError{ToolCallID: callID, Code: "x", Message: "x"}}
		if err := m.Accept(m.Stamp(end, time.Now())); err != nil || len(m.OpenItems()) > 0 {
			t.Fatalf("something is left open: %v, %v", m.OpenItems(), err)
		}
		if err == nil {
			var result struct {
				IsError bool `json:"isError"`
			}
			if err := json.Unmarshal(answer.Result, &result); err != nil {
				t.Fatal(err)
			}
			if _, ok := events[len(events)-1].Data.(event.RunFinished); ok == result.IsError {
				t.Fatalf("%s gave %s", events[len(events)-1].Type(), answer.Result)
			}
		}
	})
}

// script is a run of these payloads at its root.
func script(data ...event.Data) []event.Event {
	m := event.NewMachine("run-2", "conversation-2", event.Bounds{})
	var out []event.Event
	for _, d := range append([]event.Data{event.RunStarted{HarnessID: "native", AdapterVersion: "1"}}, data...) {
		e := m.Stamp(event.Draft{Data: d}, time.Now())
		if err := m.Accept(e); err != nil {
			panic(err)
		}
		out = append(out, e)
	}
	return out
}

// The answer is what the agent said at its root, message by message.
func TestTheAnswerIsWhatTheAgentSaid(t *testing.T) {
	t.Parallel()
	said := []event.Data{
		event.TextStarted{MessageID: "a"},
		event.TextDelta{MessageID: "a", Delta: "one "},
		event.TextDelta{MessageID: "a", Delta: "word"},
		event.TextFinished{MessageID: "a"},
		event.TextStarted{MessageID: "b"},
		event.TextDelta{MessageID: "b", Delta: "another"},
		event.TextFinished{MessageID: "b"},
	}
	for name, tc := range map[string]struct {
		end     event.Data
		outcome string
		text    string
	}{
		"finished":  {event.RunFinished{StopReason: "stop"}, "success", "one word\n\nanother"},
		"failed":    {event.RunError{Code: "model_failed", Message: "No answer.", SideEffectStatus: "none"}, "error", "The agent failed: No answer. Until then it had said:\n\none word\n\nanother"},
		"cancelled": {event.RunCancelled{Reason: "deadline", SideEffectStatus: "none"}, "cancelled", "The agent was stopped before it was done. Until then it had said:\n\none word\n\nanother"},
	} {
		f := &fake{events: script(append(slices.Clone(said), tc.end)...)}
		var told []event.Draft
		a, err := run(within(&told), f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got struct {
			Content    []struct{ Text string }
			Structured struct {
				RunID   string `json:"run_id"`
				Outcome string `json:"outcome"`
			} `json:"structuredContent"`
			IsError bool
		}
		if err := json.Unmarshal(a.Result, &got); err != nil {
			t.Fatal(err)
		}
		if got.Content[0].Text != tc.text || got.Structured.Outcome != tc.outcome || got.Structured.RunID != "run-2" || got.IsError != (tc.outcome != "success") {
			t.Errorf("%s: %s", name, a.Result)
		}
		if x, ok := told[len(told)-1].Data.(event.NamespaceExited); !ok || string(x.Outcome) != tc.outcome {
			t.Errorf("%s: last told %+v", name, told[len(told)-1])
		}
		if want := "run-1 call-1 helper work"; len(f.asked) != 1 || f.asked[0] != want {
			t.Errorf("%s: asked %q", name, f.asked)
		}
	}
}

// What was not started is an answer where the caller can do something about it, and
// is never taken for nothing where nobody knows.
func TestARunThatWasNotStarted(t *testing.T) {
	t.Parallel()
	for code, want := range map[fault.Code]error{
		fault.CapabilityScope: nil, fault.NotFound: nil, fault.InvalidRequest: nil, fault.AccessDenied: nil, fault.Capacity: nil,
		fault.DependencyUnavailable: mcpcall.ErrNoAnswer, fault.Internal: mcpcall.ErrNoAnswer, fault.StaleLease: mcpcall.ErrNoAnswer,
	} {
		var told []event.Draft
		a, err := run(within(&told), &fake{err: fault.New(code, "test", fault.Detail("agent_id: no"))})
		if !errors.Is(err, want) || (want == nil) != strings.Contains(string(a.Result), `"isError":true`) {
			t.Errorf("%s: %s, %v", code, a.Result, err)
		}
		if len(told) > 0 {
			t.Errorf("%s: told of %d events", code, len(told))
		}
	}
	var told []event.Draft
	if _, err := run(within(&told), &fake{err: errors.Join(ErrUnreachable, fault.New(fault.DependencyUnavailable, "test"))}); !errors.Is(err, mcpcall.ErrNotSent) {
		t.Errorf("out of reach: %v", err)
	}
	if _, err := run(t.Context(), &fake{}); !errors.Is(err, mcpcall.ErrNotSent) {
		t.Errorf("without a call: %v", err)
	}
	f := &fake{}
	if _, err := New(f).Call(within(&told), Tool, json.RawMessage(`{}`), time.Now().Add(-time.Second)); !errors.Is(err, mcpcall.ErrNotSent) || len(f.asked) > 0 {
		t.Errorf("too late: %v", err)
	}
}

// Two agents may give their messages the same names, and the agent that delegates
// as well.
func TestIdsDoNotMeet(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", event.MaxIDLength)
	ids := map[string]bool{}
	for _, key := range []string{"call-1", "call-2"} {
		r := &relay{prefix: newRelay(call.Within{Envelope: fence.Envelope{IdempotencyKey: key}}, "a", &fake{}).prefix}
		for _, id := range []string{"m", long, long[1:] + "y"} {
			got := r.id(id)
			if ids[got] || !event.ValidID(got) || got == id {
				t.Errorf("%s in %s is %s", id, key, got)
			}
			ids[got] = true
		}
	}
}
