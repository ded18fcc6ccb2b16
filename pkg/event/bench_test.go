package event_test

import (
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
)

// typical is what most events of a run are: a few words of text.
func typical() event.Event {
	return newMachine().Stamp(root(event.TextDelta{MessageID: "message-1", Delta: "Here are some of the words of an answer, "}), moment())
}

func BenchmarkMachineAccept(b *testing.B) {
	e := typical()
	b.ReportAllocs()
	m := newMachine()
	for b.Loop() {
		if m.Next() == 0 || m.Next() > event.MaxRunEvents-10 {
			b.StopTimer()
			m = newMachine()
			if err := feed(m, started(), textStarted("message-1")); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		e.Sequence = m.Next()
		if err := m.Accept(e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	for name, e := range map[string]event.Event{
		"delta": typical(),
		"tool": newMachine().Stamp(root(event.ToolStarted{
			ToolCallID: "call-1", ToolName: "fs.write", Arguments: event.Object(`{"path":"a.txt","content":"` + strings.Repeat("words ", 700) + `"}`),
		}), moment()),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := event.Validate(e, event.Bounds{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncodeJSON(b *testing.B) {
	e := typical()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := event.Encode(e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeJSON(b *testing.B) {
	text, err := event.Encode(typical())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := event.Decode(text, event.Bounds{}); err != nil {
			b.Fatal(err)
		}
	}
}
