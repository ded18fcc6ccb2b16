package native

import (
	"encoding/json"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

func TestOptions(t *testing.T) {
	sub := func(members string) string {
		return `{"subagents":[{"name":"a","description":"d","prompt":"p","tools":[]` + members + `}]}`
	}
	for raw, ok := range map[string]bool{
		``: true, `{}`: true, `{"temperature":0}`: true, `{"temperature":2}`: true, `{"parallel_tool_calls":16}`: true, `{"model_retries":0}`: true,
		`{"reasoning_effort":"high"}`: true, `{"compact_at_percent":95}`: true, sub(``): true, `{"subagents":[]}`: true,
		`{"temperature":2.1}`: false, `{"temperature":-1}`: false, `{"parallel_tool_calls":0}`: false, `{"parallel_tool_calls":17}`: false,
		`{"top_p":1}`: false, `[]`: false, `{"temperature":1,"temperature":2}`: false, `{"Temperature":1}`: false, `{"temperature":"1"}`: false, `{`: false,
		`{"model_retries":9}`: false, `{"model_retries":-1}`: false, `{"reasoning_effort":"huge"}`: false, `{"compact_at_percent":9}`: false, `{"compact_at_percent":96}`: false,
		sub(`,"model":"x"`): false, `{"subagents":[{"name":"a"}]}`: false,
		`{"subagents":[{"name":"A","description":"d","prompt":"p","tools":[]}]}`:                                                        false,
		`{"subagents":[{"name":"a","description":"","prompt":"p","tools":[]}]}`:                                                         false,
		`{"subagents":[{"name":"a","description":"d","prompt":"","tools":[]}]}`:                                                         false,
		`{"subagents":[{"name":"a","description":"d","prompt":"p","tools":["fs.none"]}]}`:                                               false,
		`{"subagents":[{"name":"a","description":"d","prompt":"p","tools":["fs.list"]}]}`:                                               true,
		`{"subagents":[{"name":"a","description":"d","prompt":"p","tools":["fs.list","fs.list"]}]}`:                                     false,
		`{"subagents":[{"name":"a","description":"d","prompt":"p","tools":["cofferdam.read_file"]}]}`:                                   true,
		`{"subagents":[{"name":"a","description":"d","prompt":"p","tools":["cofferdam.ask_user"]}]}`:                                    false,
		`{"subagents":[{"name":"a","description":"d","prompt":"p","tools":["cofferdam.subagent_none"]}]}`:                               false,
		`{"subagents":[{"name":"a","description":"d","prompt":"p","tools":["cofferdam.subagent_a"]}]}`:                                  false,
		`{"subagents":[{"name":"a","description":"d","prompt":"p","tools":[]},{"name":"a","description":"d","prompt":"p","tools":[]}]}`: false,
	} {
		c := construction()
		c.Options, c.Interrupts.FormInput = json.RawMessage(raw), true
		_, err := New(Config{}).Initialize(t.Context(), c)
		if (err == nil) != ok || err != nil && !fault.Is(err, fault.HarnessOptionsInvalid) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// Subagents nest two deep and no deeper.
func TestSubagentsNest(t *testing.T) {
	chain := func(n int) string {
		var subs []string
		for i := range n {
			tools := `[]`
			if i < n-1 {
				tools = `["cofferdam.subagent_` + string(rune('a'+i+1)) + `"]`
			}
			subs = append(subs, `{"name":"`+string(rune('a'+i))+`","description":"d","prompt":"p","tools":`+tools+`}`)
		}
		return `{"subagents":[` + strings.Join(subs, ",") + `]}`
	}
	for n, ok := range map[int]bool{1: true, 2: true, 3: false} {
		c := construction()
		c.Options = json.RawMessage(chain(n))
		if _, err := New(Config{}).Initialize(t.Context(), c); (err == nil) != ok {
			t.Errorf("%d deep: %v", n, err)
		}
	}
}

// The schema that operators see says what the adapter takes.
func TestOptionsSchema(t *testing.T) {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Additional *bool                      `json:"additionalProperties"`
	}
	must(t, json.Unmarshal(New(Config{}).Descriptor().OptionsSchema, &schema))
	raw, err := json.Marshal(Options{Temperature: new(float64), ParallelToolCalls: 1, ReasoningEffort: "low", ModelRetries: 1, CompactAtPercent: 50, Subagents: []Subagent{{}}})
	must(t, err)
	var members map[string]json.RawMessage
	must(t, json.Unmarshal(raw, &members))
	for name := range members {
		if schema.Properties[name] == nil {
			t.Errorf("the schema lacks %s", name)
		}
	}
	if len(schema.Properties) != len(members) || schema.Additional == nil || *schema.Additional {
		t.Errorf("the schema has %d properties of %d", len(schema.Properties), len(members))
	}
}

func TestWires(t *testing.T) {
	for wire, ok := range map[harness.Wire]bool{
		"": true, harness.WireOpenAIChat: true, harness.WireOpenAIResponses: true, harness.WireAnthropicMessages: true, harness.WireGemini: false, "telepathy": false,
	} {
		c := construction()
		c.Model.Wire = wire
		_, err := New(Config{}).Initialize(t.Context(), c)
		if (err == nil) != ok || err != nil && !fault.Is(err, fault.HarnessOptionsInvalid) {
			t.Errorf("%q: %v", wire, err)
		}
	}
	c := construction()
	c.Model.Wire, c.Options = harness.WireAnthropicMessages, json.RawMessage(`{"temperature":1.5}`)
	if _, err := New(Config{}).Initialize(t.Context(), c); !fault.Is(err, fault.HarnessOptionsInvalid) {
		t.Errorf("a temperature that the wire does not have: %v", err)
	}
}

// No two tools have one name, and nobody else's tool passes for the harness's own.
func TestNamesCollide(t *testing.T) {
	for name, tool := range map[string]harness.Tool{
		"a built-in name":  {ID: "read.file", OfferedName: "read_file", InputSchema: json.RawMessage(`{}`)},
		"a subagent":       {ID: "subagent.a", OfferedName: "subagent_a", InputSchema: json.RawMessage(`{}`)},
		"another tool":     {ID: "fs.list2", OfferedName: "fs_list", InputSchema: json.RawMessage(`{}`)},
		"an id of our own": {ID: "cofferdam.read_file", OfferedName: "cofferdam_read_file", InputSchema: json.RawMessage(`{}`)},
	} {
		c := construction()
		c.Options = json.RawMessage(`{"subagents":[{"name":"a","description":"d","prompt":"p","tools":[]}]}`)
		c.Tools = append(c.Tools, tool)
		if _, err := New(Config{}).Initialize(t.Context(), c); !fault.Is(err, fault.HarnessOptionsInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, schema := range []string{``, `[]`, `null`, `{`} {
		_, err := New(Config{}).Initialize(t.Context(), harness.Construction{Tools: []harness.Tool{{InputSchema: json.RawMessage(schema)}}})
		if !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("schema %q: %v", schema, err)
		}
	}
}

// FuzzOptions: what is taken is within its bounds.
func FuzzOptions(f *testing.F) {
	for _, text := range []string{`{}`, `{"temperature":2}`, `{"parallel_tool_calls":1e1}`, `{"model_retries":-1}`, `{"subagents":[{"name":"a","description":"b","prompt":"c","tools":["x.y"]}]}`, `null`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := parseOptions(raw)
		if err != nil {
			if !fault.Is(err, fault.HarnessOptionsInvalid) {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if o.ParallelToolCalls < 1 || o.ParallelToolCalls > maxParallel || o.ModelRetries < 0 || o.ModelRetries > maxRetries || len(o.Subagents) > maxSubagents {
			t.Fatalf("%q became %+v", raw, o)
		}
	})
}
