package toolschema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/services/worker/internal/session/toolschema"
)

func compile(t *testing.T, raw string) *toolschema.Schema {
	t.Helper()
	s, err := toolschema.Compile(json.RawMessage(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return s
}

func TestCheck(t *testing.T) {
	s := compile(t, `{"type":"object","required":["path"],"additionalProperties":false,"properties":{
		"path":{"type":"string","maxLength":10},"count":{"type":"integer","maximum":5},"list":{"type":"array","items":{"type":"object","required":["x"]}},
		"tree":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"l":{"$ref":"#/$defs/n"}},"additionalProperties":false}}}`)
	for args, want := range map[string]string{
		`{"path":"a"}`: "",
		`{"path":"a","count":3.0,"list":[{"x":1}],"tree":{"l":{"l":{}}}}`: "",
		`{}`:                                    "arguments: required",
		`{"path":7}`:                            "arguments/path: type",
		`{"path":"hunter2hunter2"}`:             "arguments/path: maxLength",
		`{"path":"a","count":77}`:               "arguments/count: maximum",
		`{"path":"a","list":[{"x":1},{}]}`:      "arguments/list/1: required",
		`{"path":"a","tree":{"r":1}}`:           "arguments/tree: additionalProperties",
		`{"path":"a","more":"hunter2"}`:         "arguments: additionalProperties",
		`{"path":"a","count":1e-999999}`:        "arguments: number out of range",
		`{"path":"a","list":[{"x":[1E-9999]}]}`: "arguments: number out of range",
		`{"path":"a","path":"b"}`:               "arguments: one JSON object",
		`[]`:                                    "arguments: one JSON object",
		`null`:                                  "arguments: one JSON object",
		``:                                      "arguments: one JSON object",
	} {
		got := ""
		if err := s.Check([]byte(args)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
		if strings.Contains(got, "hunter2") {
			t.Errorf("%s: %q tells the value", args, got)
		}
	}
}

func TestTheSameArgumentsGiveTheSameError(t *testing.T) {
	s := compile(t, `{"type":"object","additionalProperties":{"type":"null"}}`)
	args := map[string]any{"k/~": 1, strings.Repeat("x", 10_000): 1, "\u202e\n": 1}
	for i := range 50 {
		args[fmt.Sprintf("k%02d", i)] = "x"
	}
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	first := s.Check(raw)
	for range 50 {
		if err := s.Check(raw); err == nil || err.Error() != first.Error() || len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\n\u202e") {
			t.Fatal(err)
		}
	}
}

// A schema cannot reach out, and cannot make a check take for ever.
func TestSchemasThatCannotBeUsed(t *testing.T) {
	var doubling strings.Builder // 2^n schemas in a few kilobytes
	doubling.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range 40 {
		fmt.Fprintf(&doubling, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	doubling.WriteString(`"d40":{}}}`)
	for name, raw := range map[string]string{
		"empty":         ``,
		"no JSON":       `{"type":`,
		"no object":     `true`,
		"unknown type":  `{"type":"objekt"}`,
		"bad pattern":   `{"properties":{"a":{"pattern":"("}}}`,
		"dangling ref":  `{"$ref":"#/$defs/none"}`,
		"ref over HTTP": `{"$ref":"http://127.0.0.1:9/a.json"}`,
		"ref to a file": `{"$ref":"file:///etc/hostname"}`,
		"meta-schema":   `{"$schema":"http://127.0.0.1:9/meta.json"}`,
		"doubling":      doubling.String(),
		"key twice":     `{"type":"object","type":"object"}`,
		"too deep":      `{"default":` + strings.Repeat("[", toolschema.MaxDepth) + strings.Repeat("]", toolschema.MaxDepth) + `}`,
		"too large":     `{"title":"` + strings.Repeat("a", toolschema.MaxBytes) + `"}`,
	} {
		begin := time.Now()
		if _, err := toolschema.Compile(json.RawMessage(raw)); err == nil {
			t.Errorf("%s: it was taken", name)
		}
		if time.Since(begin) > 10*time.Second {
			t.Errorf("%s: it took %v", name, time.Since(begin))
		}
	}
	endless := compile(t, `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`)
	if err := endless.Check([]byte(`{}`)); err == nil {
		t.Error("a schema that refers to itself without end takes something")
	}
}

// FuzzSchema: no schema and no arguments panic, and errors stay bounded.
func FuzzSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#"}}}`, `{"a":{"a":{}}}`)
	f.Add(`{"$dynamicRef":"#x","$dynamicAnchor":"x"}`, `{}`)
	f.Add(`{"patternProperties":{"^a":{"multipleOf":0.1}}}`, `{"ab":1e300}`)
	f.Fuzz(func(t *testing.T, schema, arguments string) {
		s, err := toolschema.Compile(json.RawMessage(schema))
		if err != nil {
			return
		}
		if err := s.Check([]byte(arguments)); err != nil && len(err.Error()) > 1000 {
			t.Fatalf("%d bytes of error", len(err.Error()))
		}
	})
}
