package event_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"cofferdam.dev/pkg/event"
)

// FuzzDecodeEvent: no input panics, and what is decoded is valid and comes back
// equal from what it is encoded as.
func FuzzDecodeEvent(f *testing.F) {
	files, err := filepath.Glob("testdata/golden/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no goldens to begin with: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := event.Decode(text, event.Bounds{})
		if err != nil {
			if _, ok := errors.AsType[*event.ViolationError](err); !ok && !errors.Is(err, event.ErrEmptyDelta) {
				t.Fatalf("an error of another type: %v", err)
			}
			return
		}
		if err := event.Validate(e, event.Bounds{}); err != nil && len(text) < event.MaxEventBytes/2 {
			t.Fatalf("%q was decoded and is not valid: %v", text, err)
		}
		encoded, err := event.Encode(e)
		if err != nil || bytes.ContainsAny(encoded, "\n\r") {
			t.Fatalf("%q was decoded and is encoded as %q: %v", text, encoded, err)
		}
		again, err := event.Decode(encoded, event.Bounds{})
		if err != nil || !reflect.DeepEqual(e, again) {
			t.Fatalf("%q became %q: %v", text, encoded, err)
		}
	})
}

// draftOf makes a draft of three bytes, from few ids and namespaces so that they
// meet.
func draftOf(op, who, where byte) event.Draft {
	id := string('1' + rune(who%4))
	path := [][]string{nil, nil, {"a"}, {"b"}, {"a", "c"}}[int(where)%5]
	fragments := []string{`{"path":`, `"a"}`, `{}`, `[`, `x`}
	payloads := []event.Data{
		event.RunStarted{HarnessID: "native", AdapterVersion: "1"},
		event.TextStarted{MessageID: id},
		event.TextDelta{MessageID: id, Delta: "w"},
		event.TextFinished{MessageID: id},
		event.ReasoningStarted{MessageID: id},
		event.ReasoningDelta{MessageID: id, Delta: "w"},
		event.ReasoningFinished{MessageID: id},
		event.ToolStarted{ToolCallID: id, ToolName: "fs.read", Arguments: event.EmptyObject},
		event.ToolStarted{ToolCallID: id, ToolName: "fs.read", Arguments: `{"path":"a"}`},
		event.ToolArgumentsDelta{ToolCallID: id, Delta: fragments[int(where)%len(fragments)]},
		event.ToolFinished{ToolCallID: id, Result: "1"},
		event.ToolError{ToolCallID: id, Code: "internal", Message: "It failed."},
		event.NamespaceEntered{AgentID: "helper", AgentName: "Helper", ParentToolCallID: id},
		event.NamespaceExited{AgentID: "helper", ParentToolCallID: id, Outcome: event.NamespaceSuccess},
		event.NamespaceExited{AgentID: "helper", ParentToolCallID: id, Outcome: event.NamespaceInterrupted},
		approval(id).Data, approval("1", "2").Data, form().Data,
		event.Warning{Code: "slow", Message: "Slow."},
		event.UsageUpdated{},
		interrupted(event.InterruptedForHumanInput).Data, interrupted(event.InterruptedForToolApproval).Data,
		finished().Data, failed().Data, cancelled().Data,
	}
	if n := int(op) % len(payloads); n < len(payloads)-2 || who > 240 {
		return event.Draft{Namespace: path, Data: payloads[n]}
	}
	// An error and a cancel are always allowed: most of the time, go on instead.
	return event.Draft{Namespace: path, Data: payloads[7]}
}

// FuzzMachine: the machine takes exactly what the slow reading of the rules
// allows, and whatever it took can be closed.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 3, 0, 0, 22, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 8, 0, 0, 12, 0, 2, 8, 1, 2, 15, 1, 2, 14, 0, 2, 21, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 10, 0, 0, 11, 1, 0, 12, 2, 2, 13, 2, 2, 10, 2, 0, 22, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 7, 0, 0, 9, 0, 0, 9, 0, 1, 10, 0, 0, 17, 0, 0, 20, 0, 0})
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 0 && len(program) <= 600 {
			agree(t, program)
		}
	})
}

// The same as a plain test, with programs that get far.
func TestMachineAgreesWithTheSlowReading(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		agree(t, append([]byte{rapid.Byte().Draw(t, "carried"), 0, 0, 0}, rapid.SliceOfN(rapid.Byte(), 3, 450).Draw(t, "program")...))
	})
}

// agree runs a program and fails where the machine and the slow reading differ.
func agree(t interface{ Fatalf(string, ...any) }, program []byte) {
	h := history{}
	if program[0]%2 == 1 {
		h.carried = []event.Carried{{ToolCallID: "1", Decision: event.DecisionApprove}, {ToolCallID: "2", Decision: event.DecisionReject}, {ToolCallID: "3"}}
	}
	m := event.NewMachine(runID, conversationID, event.Bounds{}, h.carried...)
	for program = program[1:]; len(program) >= 3; program = program[3:] {
		e := m.Stamp(draftOf(program[0], program[1], program[2]), moment())
		if program[0] > 250 {
			e.Sequence += uint64(program[1]%3) - 1
		}
		allowed, err := h.allows(e), m.Check(e)
		if allowed != (err == nil) {
			t.Fatalf("after %d events, for %s %+v in %v: the machine says %v", len(h.events), e.Type(), e.Data, e.Namespace, err)
		}
		if !allowed {
			continue
		}
		if err := m.Accept(e); err != nil {
			t.Fatalf("checked, but not accepted: %v", err)
		}
		h.events = append(h.events, e)
	}
	if _, ended := m.Terminal(); ended {
		return
	}
	before := h.spaces()
	events, err := m.Close(moment(), event.RunStarted{HarnessID: "native", AdapterVersion: "1"}, failed().Data)
	if err != nil {
		t.Fatalf("it cannot be closed: %v", err)
	}
	for _, e := range events {
		if !h.allows(e) {
			t.Fatalf("closed by %s %+v, which is not allowed", e.Type(), e.Data)
		}
		h.events = append(h.events, e)
	}
	for _, o := range h.open() {
		// What waits in a namespace that was exited before cannot be closed there.
		if _, stood := before[o[2]]; stood || o[2] == "" || o[0] != "tool" {
			t.Fatalf("closed with %v open", o)
		}
	}
	if len(h.spaces()) > 0 {
		t.Fatalf("closed with a namespace open")
	}
}

// FuzzProject: no text and no JSON from outside, whatever it is, gives a result
// that an event may not have.
func FuzzProject(f *testing.F) {
	f.Add([]byte("a\x00\xff\xed\xa0\x80\u2028\"<"), 20)
	f.Add([]byte(`{"a":"\ud800","A":"\u0000","b":[1e999]}`), 100)
	f.Add([]byte(`{"a":1,"a":2}`), 3)
	f.Fuzz(func(t *testing.T, text []byte, most int) {
		most = 2 + int(uint(most)%event.MaxResultBytes)
		for name, project := range map[string]func() (event.Value, bool){
			"text": func() (event.Value, bool) { return event.ProjectText(string(text), most) },
			"JSON": func() (event.Value, bool) { return event.ProjectJSON(text, most) },
		} {
			v, cut := project()
			e := newMachine().Stamp(root(event.ToolFinished{ToolCallID: "c", Result: v}), moment())
			if err := event.Validate(e, event.Bounds{ResultBytes: most}); err != nil {
				t.Fatalf("%s %q in %d bytes became %q: %v", name, text, most, v, err)
			}
			if cut && len(v) < most-12 {
				t.Fatalf("%s %q was cut to %q, far below %d", name, text, v, most)
			}
		}
	})
}
