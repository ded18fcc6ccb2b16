package agents_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/services/controlplane/internal/agentfiles"
	"cofferdam.dev/services/controlplane/internal/agents"
)

// full is an agent with every field.
const full = `{"agent_id":"demo","version":3,"name":"Demo","organization":"org-1","harness":"native","adapter_version":"1.0.0",
"harness_options":{"n":12345678901234567890},"model_alias":"small","prompt":"Be kind.\n","tools":["fs.read_text_file","web.*"],"profile":"default",
"limits":{"run_timeout_seconds":60,"max_model_calls":4,"max_tool_calls":5,"max_output_tokens":6}}`

// parse reads agents that have neither skills nor files.
func parse(raw []byte) ([]agents.Draft, error) { return agents.Parse(raw, agentfiles.In("")) }

func one(agent string) []byte { return []byte(`{"agents":[` + agent + `]}`) }

func TestParse(t *testing.T) {
	c, err := parse(one(full))
	if err != nil {
		t.Fatal(err)
	}
	got := seeded(t, c...)["demo"]
	want := agents.Agent{
		ID: "demo", Version: 3, Name: "Demo", Organization: "org-1", Harness: "native", AdapterVersion: "1.0.0",
		HarnessOptions: map[string]any{"n": json.Number("12345678901234567890")}, ModelAlias: "small", Prompt: "Be kind.\n",
		Tools: []string{"fs.read_text_file", "web.*"}, MemoryScopes: []string{"user"}, Interrupts: agents.Interrupts{ExpireAfterSeconds: 7 * 24 * 60 * 60}, Profile: "default",
		Limits: agents.Limits{RunTimeoutSeconds: 60, MaxModelCalls: 4, MaxToolCalls: 5, MaxOutputTokens: 6},
	}
	if !reflect.DeepEqual(got, want) || got.Limits.RunTimeout() != time.Minute {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func TestDefaults(t *testing.T) {
	c, err := parse([]byte(`{"agents":[{"agent_id":"b","harness":"native","adapter_version":"1","model_alias":"m"},` +
		`{"agent_id":"a","harness":"native","adapter_version":"1","model_alias":"m"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	all := seeded(t, c...)
	a := all["b"]
	if a.Version != 1 || a.Limits != (agents.Limits{RunTimeoutSeconds: 600, MaxModelCalls: 16, MaxToolCalls: 32, MaxOutputTokens: 4096}) {
		t.Errorf("%+v", a)
	}
	if len(all) != 2 || all["a"].ID != "a" {
		t.Errorf("%v", all)
	}
	if c, err = parse([]byte(`{"agents":[]}`)); err != nil || len(c) != 0 {
		t.Errorf("no agents: %v, %v", c, err)
	}
}

// edited is the full agent with one value changed.
func edited(t *testing.T, field string, value any) string {
	t.Helper()
	var a map[string]any
	if err := json.Unmarshal([]byte(full), &a); err != nil {
		t.Fatal(err)
	}
	if l, ok := a["limits"].(map[string]any); ok && strings.HasPrefix(field, "limits.") {
		l[strings.TrimPrefix(field, "limits.")] = value
	} else {
		a[field] = value
	}
	raw, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestBounds(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	many := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = "fs.read"
		}
		return out
	}
	for _, c := range []struct {
		field  string
		ok     []any
		refuse []any
	}{
		{"agent_id", []any{"A.b_c-1", long(64)}, []any{"", long(65), "a/b", "a b", "a\n", "ä", "a:b"}},
		{"name", []any{"", strings.Repeat("ä", 128)}, []any{long(129)}},
		{"organization", []any{"", "an org"}, []any{long(257)}},
		{"harness", []any{"native", "a1"}, []any{"", "a", "Native", "1a", "na-tive", long(65)}},
		{"adapter_version", []any{"1.0.0-rc1"}, []any{"", long(65)}},
		{"harness_options", []any{map[string]any{}, map[string]any{"a": long(60 << 10)}}, []any{map[string]any{"a": long(64 << 10)}, []any{}, "x", 1}},
		{"model_alias", []any{"gpt:4", long(128)}, []any{"", long(129), "a b", "../x"}},
		{"prompt", []any{"", long(256 << 10)}, []any{long(256<<10 + 1), "\x00"}},
		{"tools", []any{[]string{}, many(256), []string{"a.b/c.d-e"}}, []any{
			many(257), []string{"fs"}, []string{"*"}, []string{"fs."}, []string{".read"}, []string{"fs.*x"}, []string{"fs.a b"}, []string{""}, "fs.read",
		}},
		{"approve_tools", []any{[]string{}, many(256), []string{"fs.*"}}, []any{many(257), []string{"*"}, []string{"fs"}}},
		{"model", []any{map[string]any{"wire": "gemini", "context_tokens": 100000000, "images": true, "documents": true}}, []any{
			map[string]any{"wire": "telex"}, map[string]any{"context_tokens": 100000001}, map[string]any{"key": "x"},
		}},
		{"interrupts", []any{map[string]any{"no_form_input": true, "no_tool_approval": true, "expire_after_seconds": 7776000}}, []any{map[string]any{"form": true}, map[string]any{"expire_after_seconds": 7776001}}},
		{"middleware", []any{[]any{map[string]any{"name": "redact", "options": map[string]any{"a": 1}}}}, []any{
			[]any{map[string]any{"name": "Redact"}},
			[]any{map[string]any{"name": "redact", "options": map[string]any{"a": long(16 << 10)}}},
			slices.Repeat([]any{map[string]any{"name": "redact"}}, 17),
		}},
		{"memory_scopes", []any{[]string{}, []string{"organization", "agent", "user"}}, []any{[]string{"everybody"}, []string{"user", "user"}}},
		{"limits.max_uploads", []any{0, 16}, []any{17}},
		{"profile", []any{"", "gpu"}, []any{"a b", long(65)}},
		{"version", []any{0, 1, 1 << 31}, []any{-1, 1.5, "1", 1 << 33}},
		{"limits.run_timeout_seconds", []any{0, 86400}, []any{86401, -1, uint32(1<<32 - 1)}},
		{"limits.max_model_calls", []any{1000}, []any{1001}},
		{"limits.max_tool_calls", []any{1000}, []any{1001}},
		{"unknown", nil, []any{1}},
		{"Harness", nil, []any{"native"}}, // the same key but for its case
	} {
		for _, v := range c.ok {
			if _, err := parse(one(edited(t, c.field, v))); err != nil {
				t.Errorf("%s = %.40v: %v", c.field, v, err)
			}
		}
		for _, v := range c.refuse {
			if got, err := parse(one(edited(t, c.field, v))); err == nil || got != nil {
				t.Errorf("%s = %.40v was taken", c.field, v)
			} else if len(err.Error()) > 1000 {
				t.Errorf("%s: the error has %d bytes", c.field, len(err.Error()))
			}
		}
	}
}

func TestDocumentsThatAreRefused(t *testing.T) {
	for name, doc := range map[string]string{
		"nothing":       ``,
		"no object":     `[]`,
		"more after it": `{"agents":[]}{}`,
		"an id twice":   `{"agents":[` + full + `,` + full + `]}`,
		"a key twice":   `{"agents":[],"agents":[]}`,
		"no UTF-8":      "{\"agents\":[{\"agent_id\":\"\xff\"}]}",
		"too large":     `{"agents":[]}` + strings.Repeat(" ", 4<<20),
	} {
		if got, err := parse([]byte(doc)); err == nil || got != nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// Everything that is wrong is said at once.
func TestAllFaultsAreNamed(t *testing.T) {
	_, err := parse([]byte(`{"agents":[{"agent_id":"a b"},` + full + `,{"agent_id":"c"}]}`))
	if err == nil {
		t.Fatal("taken")
	}
	for _, part := range []string{"agents[0]: agent_id", "harness: required", "adapter_version: required", "model_alias: required", "agents[2]: harness"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("does not say %q: %v", part, err)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "agents.json")
	if err := os.WriteFile(path, one(full), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := agents.Load(path, ""); err != nil || len(c) != 1 {
		t.Errorf("%v, %v", c, err)
	}
	for _, p := range []string{filepath.Join(dir, "none"), dir, "/dev/zero"} {
		if _, err := agents.Load(p, ""); err == nil {
			t.Errorf("%s was taken", p)
		}
	}
	if err := os.WriteFile(path, []byte(`{"agents":[{}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := agents.Load(path, ""); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("does not name the file: %v", err)
	}
}

// FuzzParse: no input panics, and what is taken is within the bounds of what a
// worker is sent.
func FuzzParse(f *testing.F) {
	f.Add(one(full))
	f.Add([]byte(`{"agents":[]}`))
	f.Add([]byte(`{"agents":[{"agent_id":"a","harness":"native","adapter_version":"1","model_alias":"m","tools":["a.*"],"limits":{"max_tool_calls":1001}}]}`))
	f.Add([]byte(`{"agents":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := parse(raw)
		if err != nil {
			if c != nil {
				t.Fatal("a catalogue and an error")
			}
			return
		}
		for _, a := range seeded(t, c...) {
			timeout := a.Limits.RunTimeout()
			if a.ID == "" || a.Version == 0 || timeout <= 0 || timeout > 24*time.Hour || a.Limits.MaxModelCalls == 0 || a.Limits.MaxToolCalls > 1000 ||
				len(a.Tools) > 256 || len(a.Prompt) > 256<<10 {
				t.Fatalf("taken: %+v", a)
			}
			for _, tool := range a.Tools {
				if !strings.Contains(tool, ".") {
					t.Fatalf("tool %q", tool)
				}
			}
			if _, err := json.Marshal(a.HarnessOptions); err != nil {
				t.Fatalf("options do not go back to JSON: %v", err)
			}
		}
	})
}

func TestWhatNeedsApproval(t *testing.T) {
	a := agents.Agent{ApproveTools: []string{"fs.write_file", "mail.*"}}
	for tool, want := range map[string]bool{"fs.write_file": true, "fs.read_text_file": false, "mail.send": true, "mailer.send": false, "fs": false} {
		if got := a.RequiresApproval(tool); got != want {
			t.Errorf("%s: %v", tool, got)
		}
	}
}
