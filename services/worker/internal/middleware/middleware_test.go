package middleware_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/middleware"
)

// tool answers everything alike and remembers what reached it.
type tool struct {
	result string
	err    error

	mu    sync.Mutex
	calls []string
}

func (t *tool) Call(_ context.Context, c harness.ToolCall) (harness.ToolResult, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, c.CallID)
	return harness.ToolResult{Result: json.RawMessage(t.result), IsError: true}, t.err
}

func steps(pairs ...string) []middleware.Step {
	var out []middleware.Step
	for pair := range slices.Chunk(pairs, 2) {
		out = append(out, middleware.Step{Name: pair[0], Options: json.RawMessage(pair[1])})
	}
	return out
}

func wrapped(t *testing.T, tl *tool, pairs ...string) harness.ToolCaller {
	t.Helper()
	chain, err := middleware.New(steps(pairs...))
	if err != nil {
		t.Fatal(err)
	}
	return chain.Wrap(harness.Facades{Tools: tl}).Tools
}

func call(t *testing.T, c harness.ToolCaller, callID, toolID string) (string, error) {
	t.Helper()
	r, err := c.Call(t.Context(), harness.ToolCall{CallID: callID, ToolID: toolID})
	if err == nil && !r.IsError {
		t.Error("a step lost that the tool failed")
	}
	return string(r.Result), err
}

func TestNoSteps(t *testing.T) {
	tl := &tool{result: `{"a":1}`}
	if got, err := call(t, wrapped(t, tl), "c", "fs.read"); got != `{"a":1}` || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	chain, err := middleware.New(steps("redact", `{"patterns":["bearer"]}`))
	if err != nil || chain.Wrap(harness.Facades{}).Tools != nil {
		t.Errorf("a run without tools got some: %v", err)
	}
}

func TestCallLimit(t *testing.T) {
	chain, err := middleware.New(steps("tool_call_limit", `{"max":2}`))
	if err != nil {
		t.Fatal(err)
	}
	for run := range 2 { // each run has its own count
		tl := &tool{result: `1`}
		c := chain.Wrap(harness.Facades{Tools: tl}).Tools
		for _, id := range []string{"a", "b", "a", "a"} {
			if _, err := call(t, c, id, "fs.read"); err != nil {
				t.Errorf("run %d, call %s: %v", run, id, err)
			}
		}
		if _, err := call(t, c, "c", "fs.read"); !fault.Is(err, fault.ToolDenied) {
			t.Errorf("run %d: the third call: %v", run, err)
		}
		if got := strings.Join(tl.calls, ""); got != "abaa" {
			t.Errorf("the tool saw %s", got)
		}
	}
}

func TestCallLimitOfOneTool(t *testing.T) {
	c := wrapped(t, &tool{result: `1`}, "tool_call_limit", `{"tool_id":"fs.write","max":0}`)
	if _, err := call(t, c, "a", "fs.read"); err != nil {
		t.Error(err)
	}
	if _, err := call(t, c, "b", "fs.write"); !fault.Is(err, fault.ToolDenied) {
		t.Error(err)
	}
}

// Calls that come at once are counted one by one.
func TestCallLimitAtOnce(t *testing.T) {
	tl := &tool{result: `1`}
	c := wrapped(t, tl, "tool_call_limit", `{"max":5}`)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			_, _ = c.Call(t.Context(), harness.ToolCall{CallID: strings.Repeat("x", i+1), ToolID: "fs.read"})
		})
	}
	wg.Wait()
	if len(tl.calls) != 5 {
		t.Errorf("%d calls were made", len(tl.calls))
	}
}

func TestDeny(t *testing.T) {
	tl := &tool{result: `1`}
	c := wrapped(t, tl, "tool_deny", `{"tool_ids":["fs.write","db.drop"]}`)
	if _, err := call(t, c, "a", "fs.write"); !fault.Is(err, fault.ToolDenied) {
		t.Error(err)
	}
	if _, err := call(t, c, "b", "fs.read"); err != nil {
		t.Error(err)
	}
	if got := strings.Join(tl.calls, ""); got != "b" {
		t.Errorf("the tool saw %s", got)
	}
}

func TestResultLimit(t *testing.T) {
	short, long := `{"a":"`+strings.Repeat("x", 10)+`"}`, `{"a":"`+strings.Repeat("ü", 100)+`"}`
	c := wrapped(t, &tool{result: short}, "tool_result_limit", `{"max_bytes":64}`)
	if got, err := call(t, c, "a", "fs.read"); got != short || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	c = wrapped(t, &tool{result: long}, "tool_result_limit", `{"max_bytes":64}`)
	got, err := call(t, c, "a", "fs.read")
	var text string
	if err != nil || len(got) > 64 || json.Unmarshal([]byte(got), &text) != nil || !strings.HasPrefix(long, text) || len(text) < 30 {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestErrorsPassUnchanged(t *testing.T) {
	c := wrapped(t, &tool{result: `"Bearer abcdefghijkl"`, err: fault.New(fault.ToolOutcomeUnknown, "test")},
		"redact", `{"patterns":["bearer"]}`, "tool_result_limit", `{"max_bytes":64}`)
	if _, err := call(t, c, "a", "fs.read"); !fault.Is(err, fault.ToolOutcomeUnknown) {
		t.Error(err)
	}
}

// The first step is the outermost. A limit before a redaction measures what was
// masked already, and a result that then fits stays whole; a redaction before a
// limit masks what was cut.
func TestOrder(t *testing.T) {
	result := `{"token":"Bearer ` + strings.Repeat("s", 80) + `","n":1}`
	limit, hide := []string{"tool_result_limit", `{"max_bytes":64}`}, []string{"redact", `{"patterns":["bearer"]}`}

	got, err := call(t, wrapped(t, &tool{result: result}, append(append([]string{}, limit...), hide...)...), "a", "fs.read")
	if want := `{"token":"[redacted]","n":1}`; got != want || err != nil {
		t.Errorf("limit, redact: got %s, %v", got, err)
	}
	got, err = call(t, wrapped(t, &tool{result: result}, append(append([]string{}, hide...), limit...)...), "a", "fs.read")
	if want := `"{\"token\":\"[redacted]"`; got != want || err != nil {
		t.Errorf("redact, limit: got %s, %v", got, err)
	}

	// A call that an outer step refuses is not counted by an inner one.
	counted := wrapped(t, &tool{result: `1`}, "tool_deny", `{"tool_ids":["fs.write"]}`, "tool_call_limit", `{"max":1}`)
	_, _ = counted.Call(t.Context(), harness.ToolCall{CallID: "a", ToolID: "fs.write"})
	if _, err := call(t, counted, "b", "fs.read"); err != nil {
		t.Errorf("deny, limit: %v", err)
	}
	counted = wrapped(t, &tool{result: `1`}, "tool_call_limit", `{"max":1}`, "tool_deny", `{"tool_ids":["fs.write"]}`)
	_, _ = counted.Call(t.Context(), harness.ToolCall{CallID: "a", ToolID: "fs.write"})
	if _, err := call(t, counted, "b", "fs.read"); !fault.Is(err, fault.ToolDenied) {
		t.Errorf("limit, deny: %v", err)
	}
}

func TestPoliciesThatAreRefused(t *testing.T) {
	for name, s := range map[string][]middleware.Step{
		"unknown step":         steps("tool_magic", `{}`),
		"no name":              steps("", `{}`),
		"unknown option":       steps("tool_call_limit", `{"max":1,"min":1}`),
		"option in other case": steps("tool_call_limit", `{"Max":1}`),
		"option twice":         steps("tool_call_limit", `{"max":1,"max":2}`),
		"no max":               steps("tool_call_limit", ``),
		"negative max":         steps("tool_call_limit", `{"max":-1}`),
		"max too large":        steps("tool_call_limit", `{"max":1001}`),
		"another type":         steps("tool_call_limit", `{"max":"1"}`),
		"no tool id":           steps("tool_call_limit", `{"max":1,"tool_id":"read"}`),
		"no object":            steps("tool_call_limit", `[]`),
		"no JSON":              steps("tool_call_limit", `{`),
		"too few bytes":        steps("tool_result_limit", `{"max_bytes":63}`),
		"too many bytes":       steps("tool_result_limit", `{"max_bytes":1048577}`),
		"nothing to deny":      steps("tool_deny", `{"tool_ids":[]}`),
		"denies no tool id":    steps("tool_deny", `{"tool_ids":["fs.*"]}`),
		"nothing to redact":    steps("redact", `{}`),
		"unknown pattern":      steps("redact", `{"patterns":["bearer","everything"]}`),
		"too many steps":       make([]middleware.Step, middleware.MaxSteps+1),
	} {
		if _, err := middleware.New(s); !fault.Is(err, fault.HarnessOptionsInvalid) || !strings.HasPrefix(fault.From(err, "").Detail(), "middleware") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := middleware.New(steps("redact", `{"patterns":["bearer"]}`, "tool_deny", `{"tool_ids":7}`))
	if !strings.HasPrefix(fault.From(err, "").Detail(), "middleware[1].options") {
		t.Errorf("the error does not name the step: %v", err)
	}
}
