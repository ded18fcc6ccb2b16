package native

import (
	"bytes"
	"encoding/json"
	"testing"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

func TestStateRoundTrip(t *testing.T) {
	want := state{Messages: []message{
		{Role: roleUser, Text: "a < b & \x00 \u2028"},
		{Role: roleAssistant, Calls: []call{{ID: "call-1", Name: "fs_list", Arguments: json.RawMessage(`{"path":"<a>"}`)}}},
		{Role: roleTool, CallID: "call-1"},
		{Role: roleAssistant, Text: "done"},
	}}
	raw, err := want.encode(0)
	must(t, err)
	if bytes.Contains(raw, []byte(`\u003c`)) {
		t.Errorf("code grows sixfold: %s", raw)
	}
	got, err := decodeState(harness.Head{Revision: 1, Payload: raw})
	must(t, err)
	again, err := got.encode(len(raw))
	must(t, err)
	if !bytes.Equal(raw, again) {
		t.Errorf("%s became %s", raw, again)
	}
	if _, err := got.encode(len(raw) - 1); !fault.Is(err, fault.StateTooLarge) {
		t.Errorf("beyond its bound: %v", err)
	}
	if s, err := decodeState(harness.Head{}); err != nil || len(s.Messages) != 0 {
		t.Errorf("a new thread: %v, %v", s, err)
	}
}

func TestStateRefused(t *testing.T) {
	for name, payload := range map[string]string{
		"nothing":          ``,
		"no JSON":          `{`,
		"a list":           `[]`,
		"no messages":      `{}`,
		"another field":    `{"messages":[],"more":1}`,
		"a doubled key":    `{"messages":[],"messages":[]}`,
		"unknown role":     `{"messages":[{"role":"system","text":"obey"}]}`,
		"no role":          `{"messages":[{"text":"x"}]}`,
		"odd arguments":    `{"messages":[{"role":"assistant","calls":[{"id":"a","name":"b","arguments":[]}]}]}`,
		"double arguments": `{"messages":[{"role":"assistant","calls":[{"id":"a","name":"b","arguments":{"a":1,"a":2}}]}]}`,
		"not UTF-8":        "{\"messages\":[{\"role\":\"user\",\"text\":\"\xff\"}]}",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := decodeState(harness.Head{Revision: 1, Payload: []byte(payload)}); !fault.Is(err, fault.PersistenceFailed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// FuzzState: no payload panics, and what is taken is kept as it is.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","text":"hi"},{"role":"assistant","calls":[{"id":"a","name":"b","arguments":{"c":[1]}}]},{"role":"tool","call_id":"a","text":"x"}]}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		s, err := decodeState(harness.Head{Revision: 1, Payload: payload})
		if err != nil {
			return
		}
		for _, m := range s.Messages {
			if _, err := json.Marshal(m.param()); err != nil {
				t.Fatalf("cannot be sent: %v", err)
			}
		}
		raw, err := s.encode(0)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeState(harness.Head{Revision: 1, Payload: raw})
		if err != nil {
			t.Fatalf("%s became %s: %v", payload, raw, err)
		}
		if twice, err := again.encode(0); err != nil || !bytes.Equal(raw, twice) {
			t.Fatalf("%s became %s: %v", raw, twice, err)
		}
	})
}

// FuzzArguments: whatever a model streams as arguments, what is kept is an object
// that an event takes.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `[]`, `{`, ``, `{"a":"\ud83d"}`, `{"a":1,"A":2}`} {
		f.Add(s, "fs_list")
	}
	f.Fuzz(func(t *testing.T, args, name string) {
		c := partialCall{name: name}
		c.args.WriteString(args)
		whole := c.whole(1, "call-1")
		if !json.Valid(whole.Arguments) || whole.Arguments[0] != '{' {
			t.Fatalf("%q became %s", args, whole.Arguments)
		}
		if whole.Name == "" || len(whole.Name) > maxName {
			t.Fatalf("%q became %q", name, whole.Name)
		}
	})
}
