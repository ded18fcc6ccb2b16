package scripted

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// What each step makes of a run.
func TestSteps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, types, text string }{
		"text":      {`[{"do":"text","text":"two words"}]`, "text.started text.delta text.delta text.finished", "two words"},
		"many":      {`[{"do":"text","text":"x","times":3,"ms":1}]`, "text.started text.delta text.delta text.delta text.finished", "x x x"},
		"reasoning": {`[{"do":"reasoning","text":"hm"}]`, "reasoning.started reasoning.delta reasoning.finished", ""},
		"usage":     {`[{"do":"usage","input":3,"output":4,"final":true}]`, "usage.updated", ""},
		"warning":   {`[{"do":"warning","code":"slow","text":"Slow."}]`, "warning", ""},
		"draft":     {`[{"do":"draft","draft":{"type":"warning","data":{"code":"c","message":"m"}}}]`, "warning", ""},
		"delay":     {`[{"do":"delay","ms":1}]`, "", ""},
		"call":      {`[{"do":"call","tool":"fs.read","args":{"a":1},"say":true}]`, "tool.started tool.finished text.started text.delta text.finished", `fs.read returned: "contents"`},
		"subagent":  {`[{"do":"subagent","name":"helper","steps":[{"do":"call","tool":"fs.read","args":{}}]}]`, "tool.started namespace.entered tool.started tool.finished namespace.exited tool.finished", ""},
		"memory":    {`[{"do":"memory_get","scope":"user","key":"k"},{"do":"memory_put","scope":"user","key":"k","text":"kept"},{"do":"memory_get","scope":"user","key":"k"}]`, strings.Repeat("text.started text.delta text.finished ", 3), "memory failed: not_foundmemory k is now at 1memory k (semantic) at 1: kept"},
		"files":     {`[{"do":"files"}]`, "text.started text.delta text.finished", "file a.txt: 4 bytes, sha256 3b9c358f36f0a31b6ad3e14f309c7cf198ac9246e8316f9ce543d5b19ac02b80"},
		"upload":    {`[{"do":"upload","name":"n","text":"x"},{"do":"upload","name":"n","text":"x"}]`, strings.Repeat("text.started text.delta text.finished ", 2), "uploaded u-nupload failed: no handle is left"},
		"decision":  {`[{"do":"decision"}]`, "text.started text.delta text.finished", "nothing was decided"},
		"free text": {`What do you remember?`, "text.started text.delta text.finished", "I remember nothing from before this message."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newStand(t, "").run(t, "run-1", c.script)
			got.wantFinished(t)
			want := strings.Join(strings.Fields("run.started "+c.types+" run.finished"), " ")
			if got.types() != want || got.text() != c.text {
				t.Errorf("events %s, want %s; said %q, want %q", got.types(), want, got.text(), c.text)
			}
		})
	}
}

func TestRecall(t *testing.T) {
	t.Parallel()
	s := newStand(t, `{"script":[{"do":"text","text":"from the options"}]}`)
	s.run(t, "run-1", "hello").wantFinished(t)
	got := s.run(t, "run-2", `[{"do":"recall"},{"do":"remember","key":"k","text":"v","bytes":10}]`)
	if got.text() != "I remember from this conversation; you said “hello”, and I “from the options”." {
		t.Errorf("said %q", got.text())
	}
	if !strings.Contains(string(s.heads.head.Payload), `"k":"vxxxxxxxxxx"`) {
		t.Errorf("the state is %s", s.heads.head.Payload)
	}
	s.run(t, "run-3", `[{"do":"remember","key":"k","bytes":1500000}]`).wantError(t, fault.StateTooLarge)
}

func TestParallel(t *testing.T) {
	t.Parallel()
	s := newStand(t, "")
	together := make(chan struct{}, 3)
	s.tools.call = func(ctx context.Context, _ harness.ToolCall) (harness.ToolResult, error) {
		together <- struct{}{}
		for len(together) < 3 {
			select {
			case <-ctx.Done():
				return harness.ToolResult{}, ctx.Err()
			case <-time.After(time.Millisecond):
			}
		}
		return harness.ToolResult{Result: json.RawMessage(`1`)}, nil
	}
	const call = `[{"do":"call","tool":"fs.read","args":{}}]`
	got := s.run(t, "run-1", `[{"do":"parallel","branches":[`+call+`,`+call+`,`+call+`]}]`)
	got.wantFinished(t)
	if n := strings.Count(got.types(), "tool.finished"); n != 3 {
		t.Errorf("events %s", got.types())
	}
}

func TestToolFails(t *testing.T) {
	t.Parallel()
	s := newStand(t, "")
	for _, c := range []struct {
		code fault.Code
		ends bool
	}{{fault.ToolDenied, false}, {fault.ToolOutcomeUnknown, false}, {fault.StaleLease, true}} {
		s.tools.call = func(context.Context, harness.ToolCall) (harness.ToolResult, error) {
			return harness.ToolResult{}, fault.New(c.code, "test")
		}
		got := s.run(t, "run-"+string(c.code), `[{"do":"call","tool":"fs.read","args":{},"say":true}]`)
		if c.ends {
			got.wantError(t, c.code)
			continue
		}
		got.wantFinished(t)
		if !strings.Contains(got.types(), "tool.error") || !strings.Contains(got.text(), string(c.code)) {
			t.Errorf("events %s, said %q", got.types(), got.text())
		}
	}
}

func TestScriptsAreStrict(t *testing.T) {
	t.Parallel()
	s := newStand(t, "")
	for n, text := range []string{
		`[`, `[1]`, `[{}]`, `[{"do":"dance"}]`, `[{"do":"text"}]`, `[{"do":"text","text":"x","extra":1}]`, `[{"do":"text","text":"x","text":"y"}]`,
		`[{"do":"delay","ms":-1}]`, `[{"do":"delay","ms":600001}]`, `[{"do":"text","text":"x","times":-1}]`, `[{"do":"flood","events":0}]`,
		`[{"do":"parallel","branches":[]}]`, `[{"do":"parallel","branches":[[{"do":"form","prompt":"p","fields":[]}]]}]`, `[{"do":"fail","code":"nonsense"}]`,
		`[{"do":"illegal","what":"nonsense"}]`, `[{"do":"draft","draft":{"type":"x","data":{}}}]`, `[{"do":"subagent","name":"a b","steps":[]}]`,
		`[{"do":"remember","key":"a b"}]`, `[{"do":"probe","what":"read","target":"/etc/passwd"}]`, `[{"do":"crash"}]`, `[{"do":"hang"}]`,
		`[{"do":"parallel","branches":[[{"do":"exit","code":0}]]}]`,
	} {
		got := s.run(t, "run-"+strings.Repeat("x", n+1), text)
		got.wantError(t, fault.InvalidRequest)
		if got.types() != "run.started run.error" {
			t.Errorf("%s: %s", text, got.types())
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for options, ok := range map[string]bool{
		``: true, `{}`: true, `{"hostile":true}`: true, `{"script":[{"do":"recall"}]}`: true, `{"hostile":true,"script":[{"do":"crash"}]}`: true,
		`[]`: false, `{"friendly":true}`: false, `{"script":[{"do":"dance"}]}`: false, `{"script":[{"do":"crash"}]}`: false, `{"hostile":1}`: false,
	} {
		_, err := New().Initialize(t.Context(), construction(options))
		if (err == nil) != ok || err != nil && fault.CodeOf(err) != fault.HarnessOptionsInvalid {
			t.Errorf("%s: %v", options, err)
		}
	}
}

func TestInterrupts(t *testing.T) {
	t.Parallel()
	const approve = `[{"do":"approve","calls":[{"tool":"fs.write","args":{"n":1}},{"tool":"fs.write","args":{"n":2}}]},{"do":"decision"}]`
	const form = `[{"do":"form","prompt":"Which?","fields":[{"field_name":"region","field_type":"text","required":true}]},{"do":"decision"}]`
	for name, c := range map[string]struct {
		script   string
		decision harness.Decision
		text     string
		calls    string
	}{
		"approve": {approve, harness.Decision{Tools: []harness.ToolDecision{{Decision: event.DecisionApprove}, {Decision: event.DecisionReject}}}, `decided on 2 calls: fs.write returned: "contents"`, `fs.write {"n":1}`},
		"edit":    {approve, harness.Decision{Tools: []harness.ToolDecision{{Decision: event.DecisionReject}, {Decision: event.DecisionEdit, Arguments: json.RawMessage(`{"n":9}`)}}}, `decided on 2 calls: fs.write returned: "contents"`, `fs.write {"n":9}`},
		"dismiss": {approve, harness.Decision{Dismissed: true}, "dismissed", ""},
		"form":    {form, harness.Decision{Form: json.RawMessage(`{"region":"eu"}`)}, `the form says: {"region":"eu"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, "")
			first, second := &collector{}, &collector{}
			rt, err := New().Initialize(t.Context(), construction(""))
			must(t, err)
			_, err = rt.Stream(t.Context(), harness.Turn{RunID: "run-1", Message: c.script}, s.facades(s.heads), first)
			must(t, err)
			asked, ok := first.drafts[len(first.drafts)-1].Data.(event.InterruptRequested)
			if !ok {
				t.Fatalf("events %s", first.types())
			}
			c.decision.RunID, c.decision.Interrupt = "run-2", asked
			for i := range c.decision.Tools {
				c.decision.Tools[i].ToolCallID = asked.ToolApprovals[i].ToolCallID
			}
			fresh, err := New().Initialize(t.Context(), construction(""))
			must(t, err)
			_, err = fresh.Resume(t.Context(), c.decision, s.facades(s.heads), second)
			must(t, err)
			if second.text() != c.text || strings.Join(s.tools.calls, ";") != c.calls {
				t.Errorf("said %q; the tool saw %q", second.text(), s.tools.calls)
			}
		})
	}
	t.Run("that the policy forbids", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, "")
		rt, err := New().Initialize(t.Context(), harness.Construction{})
		must(t, err)
		for _, text := range []string{approve, form} {
			_, err := rt.Stream(t.Context(), harness.Turn{RunID: "run-1", Message: text}, s.facades(s.heads), &collector{})
			if fault.CodeOf(err) != fault.AccessDenied {
				t.Errorf("got %v", err)
			}
		}
	})
}

// FuzzParse: no script panics, and one that is not hostile has no hostile step.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`[{"do":"text","text":"x"}]`, `[{"do":"parallel","branches":[[{"do":"recall"}]]}]`, `[{"do":"crash"}]`, `[{"do":"subagent","name":"a","steps":[{"do":"spin","ms":1}]}]`,
		`[{"do":"call","tool":"fs.read","args":{"a":[1,2]}}]`, `[{"do":"approve","calls":[{"tool":"a","args":{}}],"allowed":["edit"]}]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parse(text, false)
		if err != nil {
			return
		}
		for _, st := range s.steps {
			if _, hostile := st.(hostileStep); hostile {
				t.Fatalf("%q has a hostile step", text)
			}
		}
		again, err := json.Marshal(s.text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(again, false); err != nil && len(again) <= maxScript {
			t.Fatalf("%q became %q, which is no script: %v", text, again, err)
		}
	})
}

// FuzzState: a state is refused, or what is left of its script is one that this
// profile may play.
func FuzzState(f *testing.F) {
	for _, text := range []string{
		`{"sayings":[{"user":"a","text":"b"}],"kept":{"a":"b"},"rest":[{"do":"text","text":"x"}]}`,
		`{"sayings":[],"rest":[{"do":"crash"}]}`, `{"sayings":null}`, `{"sayings":[],"rest":[1]}`, `[]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		s, err := decodeState(payload)
		if err != nil {
			return
		}
		rest, err := s.takeRest(false)
		if err != nil {
			return
		}
		for _, st := range rest.steps {
			if _, hostile := st.(hostileStep); hostile {
				t.Fatalf("%q has a hostile step", payload)
			}
		}
	})
}
