package call

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/toolbroker/internal/project"
)

// anything is a tool that takes every argument.
type anything struct{}

func (anything) Check(map[string]any) error      { return nil }
func (anything) Repeatable() bool                { return false }
func (anything) NeedsApproval() bool             { return false }
func (anything) Risk() string                    { return "low" }
func (anything) Timeout() time.Duration          { return time.Second }
func (anything) Prepare(context.Context, Behalf) {}

func (anything) Call(context.Context, Behalf, json.RawMessage, time.Time, *Input) (Reply, error) {
	return Reply{}, ErrNotSent
}

func TestDigestsTellCallsApart(t *testing.T) {
	t.Parallel()
	digest := func(tool, args string) string {
		a, err := parseArguments(tool, []byte(args), anything{})
		if err != nil {
			t.Fatal(err)
		}
		return a.digest
	}
	if digest("a.b", `{"x":1,"y":"\u00e9"}`) != digest("a.b", "{ \"y\" : \"é\",\n\"x\":1 }") {
		t.Error("white space, order or escapes make another call")
	}
	seen := map[string]string{}
	for _, c := range [][2]string{
		{"a.b", `{}`},
		{"a.c", `{}`},
		{"a.b", `{"x":1}`},
		{"a.b", `{"x":"1"}`},
		{"a.b", `{"x":1.0}`},
		{"a.b", `{"x":null}`},
		{"a.b", `{"x":[1]}`},
		{"a.b", `{"X":1}`},
		{"a.b{", `{}`}, // where the id ends is part of the digest
	} {
		d := digest(c[0], c[1])
		if other, twice := seen[d]; twice {
			t.Errorf("%v has the digest of %s", c, other)
		}
		seen[d] = c[0] + c[1]
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1e5,"b":{"c":[null,"\u2028<"]}}`, `{"a":1,"A":2}`, `[]`, `{"a":-0.0}`, `{"a":"` + strings.Repeat("x", 100) + `"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := parseArguments("a.b", raw, anything{})
		if err != nil {
			if !fault.Is(err, fault.ToolArgumentsInvalid) {
				t.Fatal(err)
			}
			return
		}
		// What is sent means the same, and passes the same checks. Escapes may
		// make it longer.
		err = strictjson.Check(a.text, strictjson.Options{MaxBytes: 6 * event.MaxArgumentsBytes, MaxDepth: event.MaxArgumentsDepth})
		if err != nil {
			t.Errorf("%q is sent for %q: %v", a.text, raw, err)
		}
		if len(a.text) > event.MaxArgumentsBytes {
			return
		}
		if again, err := parseArguments("a.b", a.text, anything{}); err != nil || again.digest != a.digest {
			t.Errorf("%q is sent for %q and is another call: %v", a.text, raw, err)
		}
	})
}

func TestOutcomesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	for _, r := range []project.Result{
		{JSON: json.RawMessage(`{"content":[]}`)},
		{JSON: json.RawMessage(`{"content":[{"type":"text","text":"<é>"}],"isError":true}`), IsError: true},
		{JSON: json.RawMessage(`{"content":[],"structuredContent":{"id":12345678901234567890,"a":1,"A":2},"truncated":true}`), Truncated: true},
		{JSON: json.RawMessage(`{"content":[{"type":"text","text":"` + strings.Repeat("x", project.MaxBytes-40) + `"}]}`), IsError: true, Truncated: true},
	} {
		b, err := encodeOutcome(r, "obj_1", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeOutcome(b)
		if err != nil || got.Ref != "obj_1" || string(got.Result) != string(r.JSON) || got.IsError != r.IsError || got.Truncated != r.Truncated {
			t.Errorf("%.80s: %.80s %v", r.JSON, got.Result, err)
		}
	}
	if _, err := encodeOutcome(project.Result{JSON: make([]byte, project.MaxBytes+1)}, "", nil); err == nil {
		t.Error("a result over its bound was stored")
	}
}

func FuzzOutcome(f *testing.F) {
	f.Add([]byte(`{"result":{"content":[]},"is_error":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeOutcome(b); err == nil && !json.Valid(r.Result) {
			t.Errorf("%q has the result %q", b, r.Result)
		}
	})
}
