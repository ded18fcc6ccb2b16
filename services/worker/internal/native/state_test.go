package native

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/native/model"
)

func text(role model.Role, s string) model.Message {
	return model.Message{Role: role, Parts: []model.Part{{Kind: model.Text, Text: s}}}
}

func sampleState() state {
	call := func(id, name string) model.Part {
		return model.Part{Kind: model.Call, CallID: id, Name: name, Arguments: json.RawMessage(`{"path":"<a>"}`)}
	}
	return state{Interrupt: "int-1", Conversation: &conversation{
		Messages: []model.Message{
			{Role: model.User, Parts: []model.Part{{Kind: model.Image, Name: "a.png", MIMEType: "image/png", Data: []byte("\x89PNG")}, {Kind: model.Text, Text: "a < b & \x00 \u2028"}}},
			{Role: model.Assistant, Parts: []model.Part{
				{Kind: model.Reasoning, Text: "hm", Seal: &model.Seal{Wire: "w", ID: "r", Opaque: "o"}}, call("call-1", "fs_list"), call("call-2", "subagent_a"),
			}},
		},
		Open: []openCall{
			{ID: "call-1", Progress: callDone, Text: "x"},
			{ID: "call-2", Progress: callDelegated, Conversation: &conversation{
				Messages: []model.Message{text(model.User, "task"), {Role: model.Assistant, Parts: []model.Part{call("call-3", "fs_list")}}},
				Open:     []openCall{{ID: "call-3", Progress: callAsked}},
			}},
		},
	}}
}

func TestStateRoundTrip(t *testing.T) {
	want := sampleState()
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
	if _, err := got.encode(100); !fault.Is(err, fault.StateTooLarge) {
		t.Errorf("beyond its bound: %v", err)
	}
	if s, err := decodeState(harness.Head{}); err != nil || len(s.Conversation.Messages) != 0 {
		t.Errorf("a new thread: %v, %v", s, err)
	}
}

// Files are what goes first when the state would be too large, the oldest before
// the others, and the conversation itself keeps them.
func TestStateLeavesFilesOut(t *testing.T) {
	file := func(name string) model.Message {
		return model.Message{Role: model.User, Parts: []model.Part{{Kind: model.Image, Name: name, MIMEType: "image/png", Data: bytes.Repeat([]byte("x"), 3000)}}}
	}
	s := state{Conversation: &conversation{Messages: []model.Message{file("old.png"), text(model.Assistant, "seen"), file("new.png")}}}
	raw, err := s.encode(6000)
	must(t, err)
	if len(raw) > 6000 || bytes.Contains(raw, []byte(`"name":"old.png"`)) || !bytes.Contains(raw, []byte(`old.png`)) || !bytes.Contains(raw, []byte(`"name":"new.png"`)) {
		t.Errorf("%d bytes: %.300s", len(raw), raw)
	}
	if len(s.Conversation.Messages[0].Parts[0].Data) != 3000 {
		t.Error("the conversation has lost the file")
	}
	if _, err := decodeState(harness.Head{Revision: 1, Payload: raw}); err != nil {
		t.Error(err)
	}
}

const open1 = `"messages":[{"role":"assistant","parts":[{"kind":"call","call_id":"a","name":"b","arguments":{}}]}]`

func TestStateRefused(t *testing.T) {
	for name, payload := range map[string]string{
		"nothing":            ``,
		"no JSON":            `{`,
		"a list":             `[]`,
		"no conversation":    `{}`,
		"no messages":        `{"conversation":{}}`,
		"a null":             `{"conversation":null}`,
		"another field":      `{"conversation":{"messages":[]},"more":1}`,
		"a doubled key":      `{"conversation":{"messages":[],"messages":[]}}`,
		"the first version":  `{"messages":[]}`,
		"unknown role":       `{"conversation":{"messages":[{"role":"system","parts":[{"kind":"text","text":"obey"}]}]}}`,
		"unknown kind":       `{"conversation":{"messages":[{"role":"user","parts":[{"kind":"video"}]}]}}`,
		"no parts":           `{"conversation":{"messages":[{"role":"user","parts":[]}]}}`,
		"odd arguments":      `{"conversation":{"messages":[{"role":"assistant","parts":[{"kind":"call","call_id":"a","name":"b","arguments":[]}]}]}}`,
		"double arguments":   `{"conversation":{"messages":[{"role":"assistant","parts":[{"kind":"call","call_id":"a","name":"b","arguments":{"a":1,"a":2}}]}]}}`,
		"not UTF-8":          "{\"conversation\":{\"messages\":[{\"role\":\"user\",\"parts\":[{\"kind\":\"text\",\"text\":\"\xff\"}]}]}}",
		"not base64":         `{"conversation":{"messages":[{"role":"user","parts":[{"kind":"image","data":"!"}]}]}}`,
		"open without calls": `{"conversation":{"messages":[],"open":[{"id":"a","progress":"asked"}]}}`,
		"open, another call": `{"conversation":{` + open1 + `,"open":[{"id":"x","progress":"asked"}]}}`,
		"open, unknown":      `{"conversation":{` + open1 + `,"open":[{"id":"a","progress":"maybe"}]}}`,
		"open, nobody":       `{"conversation":{` + open1 + `,"open":[{"id":"a","progress":"delegated"}]}}`,
		"open, too deep":     `{"conversation":` + deepOpen(maxDepth+1) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := decodeState(harness.Head{Revision: 1, Payload: []byte(payload)}); !fault.Is(err, fault.PersistenceFailed) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := decodeState(harness.Head{Revision: 1, Payload: []byte(`{"conversation":` + deepOpen(maxDepth) + `}`)}); err != nil {
		t.Errorf("as deep as subagents nest: %v", err)
	}
}

func deepOpen(deep int) string {
	if deep == 0 {
		return `{` + open1 + `,"open":[{"id":"a","progress":"asked"}]}`
	}
	return `{` + open1 + `,"open":[{"id":"a","progress":"delegated","conversation":` + deepOpen(deep-1) + `}]}`
}

// A thread of the first version goes on: its state is read as it was, and written
// as the new one.
func TestStateOfTheFirstVersion(t *testing.T) {
	s := newStand(t)
	s.thread.codec = codecV1()
	s.thread.head = harness.Head{Revision: 7, Payload: []byte(`{"messages":[{"role":"user","text":"look"},` +
		`{"role":"assistant","text":"I look.","calls":[{"id":"c-1","name":"fs_list","arguments":{"n":1}},{"id":"c-2","name":"fs_list","arguments":{}}]},` +
		`{"role":"tool","call_id":"c-1","text":"one"},{"role":"tool","call_id":"c-2"},{"role":"assistant","text":"done"}]}`)}
	s.model.play(answer1("ok"))
	s.run(t, "run-1", "again").wantFinished(t, "stop")
	var got []string
	for _, m := range s.model.last(t) {
		got = append(got, m.Role+":"+m.Content+m.ToolCallID)
	}
	if want := "system:be brief user:look assistant:I look. tool:onec-1 tool:c-2 assistant:done user:again"; strings.Join(got, " ") != want {
		t.Errorf("the model is sent %q", got)
	}
	if s.thread.codec != codec() || s.thread.head.Revision != 8 {
		t.Errorf("written as %+v, revision %d", s.thread.codec, s.thread.head.Revision)
	}
	s.model.play(answer1("ok"))
	s.run(t, "run-2", "and again").wantFinished(t, "stop")
	if n := len(s.model.last(t)); n != 9 {
		t.Errorf("%d messages", n)
	}
}

func TestStateOfTheFirstVersionRefused(t *testing.T) {
	for name, payload := range map[string]string{
		"unknown role":          `{"messages":[{"role":"system","text":"obey"}]}`,
		"odd arguments":         `{"messages":[{"role":"assistant","calls":[{"id":"a","name":"b","arguments":[]}]}]}`,
		"calls without results": `{"messages":[{"role":"assistant","calls":[{"id":"a","name":"b","arguments":{}}]}]}`,
		"no messages":           `{}`,
		"the second version":    `{"conversation":{"messages":[]}}`,
	} {
		if _, err := decodeV1(harness.Head{Revision: 1, Payload: []byte(payload)}); !fault.Is(err, fault.PersistenceFailed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzState: no payload panics, and what is taken is kept as it is.
func FuzzState(f *testing.F) {
	sample := sampleState()
	raw, err := sample.encode(0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"messages":[{"role":"user","text":"hi"},{"role":"tool","call_id":"a","text":"x"}]}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		h := harness.Head{Revision: 1, Payload: payload}
		s, err := decodeState(h)
		if err != nil {
			if s, err = decodeV1(h); err != nil {
				return
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
		again.abandon()
		if len(again.Conversation.Open) > 0 {
			t.Fatal("calls stay open")
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
		whole := c.whole("call-1")
		started := event.Draft{Data: event.ToolStarted{ToolCallID: whole.CallID, ToolName: "t.t", Arguments: event.Object(whole.Arguments)}}
		if err := event.Validate(started.Event("r", "c", 1, at), event.Bounds{}); err != nil && len(whole.Arguments) <= maxWholeArguments {
			t.Fatalf("%q became %s: %v", args, whole.Arguments, err)
		}
		if whole.Name == "" || len(whole.Name) > maxName {
			t.Fatalf("%q became %q", name, whole.Name)
		}
	})
}
