package harnesses_test

import (
	"strings"
	"testing"

	"cofferdam.dev/services/controlplane/internal/harnesses"
)

const good = `{"harness_id":"native","adapter_version":"1.0.0","contract_versions":[1],"execution_mode":"sandbox_pod",
"options_schema":{"type":"object","properties":{"a":{"type":"integer"},"A":{"type":"integer"}},"required":["a"]},
"capabilities":{"tool.mcp":{"level":"native"},"skills":{"level":"emulated"},"subagents":{"level":"unsupported"},"tool.builtin":{"level":"unavailable"}}}`

func parse(t *testing.T, profile string, enabled bool) harnesses.Entry {
	t.Helper()
	e, err := harnesses.Parse(profile, enabled, "native", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestWhatAHarnessOffers(t *testing.T) {
	e := parse(t, "local", true)
	for key, want := range map[string]string{"tool.mcp": "", "skills": "", "subagents": "unsupported", "tool.builtin": "unavailable", "stream.text": "not described"} {
		if ok, reason := e.Offers(key); ok != (want == "") || reason != want {
			t.Errorf("%s: %v, %q", key, ok, reason)
		}
	}
	if v := e.CheckOptions(nil); len(v) != 1 || v[0].Rule != "required: a" {
		t.Errorf("no options: %v", v)
	}
}

// The catalogue gives what a claim gets.
func TestFor(t *testing.T) {
	c := harnesses.New(parse(t, "off", false), parse(t, "first", true), parse(t, "second", true))
	for _, w := range []struct{ harness, profile, want string }{
		{"native", "", "first"}, {"native", "second", "second"}, {"native", "off", "off"}, {"native", "third", ""}, {"acp", "", ""}, {"acp", "first", ""},
	} {
		if e, ok := c.For(w.harness, w.profile); ok != (w.want != "") || e.Profile != w.want {
			t.Errorf("%s %q: %q, %v", w.harness, w.profile, e.Profile, ok)
		}
	}
}

func TestDescriptorsThatAreRefused(t *testing.T) {
	for name, change := range map[string][2]string{
		"another harness":         {`"native","adapter`, `"other","adapter`},
		"another contract":        {"[1]", "[2]"},
		"no version":              {"1.0.0", ""},
		"a level of its own":      {"emulated", "certified"},
		"an unknown field":        {`{"harness_id"`, `{"more":1,"harness_id"`},
		"a schema that is none":   {`"type":"object"`, `"type":"thing"`},
		"a schema of another one": {`"type":"object"`, `"type":"array"`},
		"a schema from elsewhere": {`"required":["a"]`, `"$ref":"https://example.org/x"`},
	} {
		raw := strings.Replace(good, change[0], change[1], 1)
		if raw == good {
			t.Fatalf("%s changes nothing", name)
		}
		if _, err := harnesses.Parse("local", true, "native", []byte(raw)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, err := harnesses.Parse("local", true, "native", []byte(good+strings.Repeat(" ", harnesses.MaxBytes))); err == nil {
		t.Error("one that is too large was taken")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := harnesses.Parse("local", true, "native", raw)
		if err == nil && (e.HarnessID != "native" || e.AdapterVersion == "") {
			t.Fatalf("taken: %+v", e)
		}
	})
}
