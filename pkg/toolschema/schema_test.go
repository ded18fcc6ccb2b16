package toolschema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/pkg/toolschema"
)

func compile(t *testing.T, raw string) *toolschema.Schema {
	t.Helper()
	s, err := toolschema.Compile(json.RawMessage(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return s
}

func arguments(t *testing.T, raw string) map[string]any {
	t.Helper()
	var args map[string]any
	if err := strictjson.Unmarshal([]byte(raw), &args, strictjson.Options{}); err != nil {
		t.Fatal(err)
	}
	return args
}

func TestErrorsNamePlaceAndRuleAndNoValue(t *testing.T) {
	t.Parallel()
	s := compile(t, `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","required":["path"],"additionalProperties":false,
		"properties":{"path":{"type":"string","maxLength":10,"pattern":"^[a-z]*$"},"count":{"type":"integer","maximum":5},"mode":{"enum":["aa","bb"]},
			"list":{"type":"array","items":{"type":"object","required":["x"]}},"tree":{"$ref":"#/definitions/node"},"a/b~c":{"type":"null"}},
		"definitions":{"node":{"type":"object","properties":{"left":{"$ref":"#/definitions/node"}},"additionalProperties":false}}}`)
	for _, c := range []struct{ args, want string }{
		{`{"path":"abc"}`, ""},
		{`{"path":"abc","count":3,"mode":"aa","list":[{"x":1}],"tree":{"left":{"left":{}}}}`, ""},
		{`{"path":"abc","count":3.0}`, ""},
		{`{}`, "arguments: required: path"},
		{`{"path":5}`, "arguments/path: type: string"},
		{`{"path":"hunter2hunter2"}`, "arguments/path: maxLength"},
		{`{"path":"HUNTER2"}`, "arguments/path: pattern"},
		{`{"path":"a","count":77}`, "arguments/count: maximum"},
		{`{"path":"a","count":1.5}`, "arguments/count: type: integer"},
		{`{"path":"a","mode":"hunter2"}`, "arguments/mode: enum"},
		{`{"path":"a","list":[{"x":1},{}]}`, "arguments/list/1: required: x"},
		{`{"path":"a","tree":{"left":{"right":1}}}`, "arguments/tree/left: additionalProperties: right"},
		{`{"path":"a","more":"hunter2"}`, "arguments: additionalProperties: more"},
		{`{"path":"a","a/b~c":"hunter2"}`, "arguments/a~1b~0c: type: null"},
		{`{"path":"a","count":1e-999999}`, "arguments/count: number out of range"},
		{`{"path":"a","list":[{"x":{"y":[1,2,1E-99999999999999]}}]}`, "arguments/list/0/x/y/2: number out of range"},
	} {
		err := s.Check(arguments(t, c.args))
		got := ""
		if err != nil {
			got = err.Error()
			if _, ok := errors.AsType[*toolschema.ArgumentError](err); !ok {
				t.Errorf("%s: %T", c.args, err)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
		if strings.Contains(strings.ToLower(got), "hunter2") {
			t.Errorf("%s: %q tells the value", c.args, got)
		}
	}
}

func TestLongAndOddNamesStayBoundedInErrors(t *testing.T) {
	t.Parallel()
	s := compile(t, `{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"null"}}}`)
	for _, key := range []string{strings.Repeat("k", 10_000), "a\nb\tc", "\u202eright to left", "é"} {
		err := s.Check(map[string]any{key: map[string]any{key: "x"}})
		if err == nil || len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\n\t\u202e") {
			t.Errorf("%.20q: %v", key, err)
		}
	}
}

func TestTheSameArgumentsGiveTheSameError(t *testing.T) {
	t.Parallel()
	s := compile(t, `{"type":"object","additionalProperties":{"type":"null"}}`)
	args := map[string]any{}
	for i := range 50 {
		args[fmt.Sprintf("k%02d", i)] = "x"
	}
	for range 50 {
		if err := s.Check(args); err == nil || err.Error() != "arguments/k00: type: null" {
			t.Fatal(err)
		}
	}
}

func TestSchemasThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	// Each level refers twice to the next: 2^n schemas in a few kilobytes.
	var doubling, nested strings.Builder
	doubling.WriteString(`{"type":"object","$ref":"#/$defs/d0","$defs":{`)
	nested.WriteString(`{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{`)
	for i := range 40 {
		fmt.Fprintf(&doubling, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
		fmt.Fprintf(&nested, `"d%d":{"properties":{"l":{"$ref":"#/$defs/d%d"},"r":{"$ref":"#/$defs/d%d"}}},`, i, i+1, i+1)
	}
	doubling.WriteString(`"d40":{}}}`)
	nested.WriteString(`"d40":{}}}`)
	for name, raw := range map[string]string{
		"empty":              ``,
		"no JSON":            `{"type":`,
		"text":               `"object"`,
		"true":               `true`,
		"of no object":       `{"type":"string"}`,
		"of several types":   `{"type":["object","null"]}`,
		"no type":            `{}`,
		"unknown type":       `{"type":"object","properties":{"a":{"type":"objekt"}}}`,
		"bad pattern":        `{"type":"object","properties":{"a":{"pattern":"("}}}`,
		"dangling ref":       `{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}`,
		"ref over HTTP":      `{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:9/a.json"}}}`,
		"ref to a file":      `{"type":"object","properties":{"a":{"$ref":"file:///etc/hostname"}}}`,
		"relative ref":       `{"type":"object","properties":{"a":{"$ref":"other.json"}}}`,
		"base and ref":       `{"$id":"http://127.0.0.1:9/","type":"object","properties":{"a":{"$ref":"other.json"}}}`,
		"own meta-schema":    `{"$schema":"http://127.0.0.1:9/meta.json","type":"object"}`,
		"endless ref":        `{"type":"object","$ref":"#"}`,
		"endless by two":     `{"type":"object","$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`,
		"doubling":           doubling.String(),
		"doubling by level":  nested.String(),
		"key twice":          `{"type":"object","type":"object"}`,
		"not UTF-8":          "{\"type\":\"object\",\"title\":\"\xff\"}",
		"too deep":           `{"type":"object","default":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		"too large":          `{"type":"object","title":"` + strings.Repeat("a", toolschema.MaxBytes) + `"}`,
		"huge bound":         `{"type":"object","properties":{"a":{"maximum":1e999}}}`,
		"properties as list": `{"type":"object","properties":[]}`,
	} {
		begin := time.Now()
		if _, err := toolschema.Compile(json.RawMessage(raw)); err == nil {
			t.Errorf("%s: it was taken", name)
		}
		if time.Since(begin) > 10*time.Second {
			t.Errorf("%s: it took %v", name, time.Since(begin))
		}
	}
}

func TestSchemasOfTheRealWorld(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"draft-07 with defaults":   `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"path":{"type":"string","default":"."}},"additionalProperties":false}`,
		"2020-12, recursive":       `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}}}}}`,
		"recursive through root":   `{"type":"object","properties":{"child":{"$ref":"#"}}}`,
		"dynamic ref":              `{"type":"object","$dynamicAnchor":"node","properties":{"child":{"$dynamicRef":"#node"}}}`,
		"anchor":                   `{"type":"object","properties":{"a":{"$ref":"#thing"}},"$defs":{"t":{"$anchor":"thing","type":"string"}}}`,
		"own id":                   `{"$id":"https://example.org/tool","type":"object","properties":{"a":{"$ref":"#/$defs/t"}},"$defs":{"t":{"type":"string"}}}`,
		"arguments of either case": `{"type":"object","properties":{"id":{"type":"string"},"ID":{"type":"string"}}}`,
	} {
		s := compile(t, raw)
		if err := s.Check(map[string]any{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if string(s.JSON()) != raw {
			t.Errorf("%s became %s", name, s.JSON())
		}
	}
}

func FuzzCompileAndCheck(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#"}}}`), []byte(`{"a":{"a":1}}`))
	f.Add([]byte(`{"type":"object","additionalProperties":{"multipleOf":0.1}}`), []byte(`{"a":1e300}`))
	f.Fuzz(func(_ *testing.T, raw, args []byte) {
		stuck := time.AfterFunc(5*time.Second, func() { panic("it takes too long") })
		defer stuck.Stop()
		s, err := toolschema.Compile(raw)
		if err != nil {
			return
		}
		var decoded map[string]any
		if strictjson.Unmarshal(args, &decoded, strictjson.Options{}) == nil {
			_ = s.Check(decoded)
		}
	})
}
