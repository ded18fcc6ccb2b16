package acp

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// Whatever an agent tells, in whatever order, the events are one run that can
// finish.
func FuzzUpdates(f *testing.F) {
	for _, seed := range []string{
		chunkHi + "\n" + thought + "\n" + call1(`"title":"bash","status":"pending","rawInput":{}`) + "\n" + update1(completed),
		`ask {"toolCallId":"c1","title":"x"}` + "\nmcp\n" + update1(`"rawInput":{"a":1},"status":"failed"`),
		"old " + call1(`"title":"bash"`) + "\n" + update1(`"rawOutput":{"a":"\u0000"}`),
		call1(`"title":"cofferdam_demo_echo","rawInput":{"text":"x"}`) + "\nmcp c1\n" + update1(completed) + "\n" + update1(completed),
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\ud800"}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, script string) {
		p := newProjector("t", testTools(), nil)
		m := event.NewMachine("run-1", "conversation-1", event.Bounds{})
		take := func(drafts []event.Draft) {
			for _, d := range drafts {
				if event.IsEmptyDelta(d.Data) {
					t.Fatal("an empty delta")
				}
				if err := m.Accept(m.Stamp(d, time.Unix(1, 0).UTC())); err != nil {
					t.Fatalf("%#v: %v", d.Data, err)
				}
			}
		}
		take([]event.Draft{{Data: event.RunStarted{HarnessID: ID, AdapterVersion: Version}}})
		for l := range strings.Lines(script) {
			word, rest, _ := strings.Cut(strings.TrimSuffix(l, "\n"), " ")
			switch word {
			case "mcp":
				take(p.arrived(harness.Tool{ID: "demo.echo"}, map[string]any{"id": rest}))
			case "ask":
				if _, r, err := decodePermission(json.RawMessage(`{"toolCall":` + rest + `}`)); err == nil {
					if c, err := p.take(r); err == nil && c != nil {
						take(p.follow(c, true))
					}
				}
			default:
				text, old := strings.CutPrefix(strings.TrimSuffix(l, "\n"), "old ")
				_, u, err := decodeUpdate(json.RawMessage(`{"update":` + text + `}`))
				switch {
				case err != nil:
				case old:
					p.outside(u)
				default:
					drafts, err := p.update(u)
					if err != nil {
						t.Fatal(err)
					}
					take(drafts)
				}
			}
		}
		take(p.finish(nil))
		for _, c := range p.order {
			if c.tool != nil && c.id != "" && !c.ended {
				t.Fatal("a call is open")
			}
		}
		if err := m.Check(m.Stamp(event.Draft{Data: event.RunFinished{StopReason: "x"}}, time.Unix(1, 0).UTC())); err != nil {
			t.Fatalf("the run cannot finish: %v", err)
		}
	})
}

type sink struct{ updates int }

func (s *sink) update(string, update) error { s.updates++; return nil }

func (s *sink) asking(string, report) error { return nil }

// The pump passes on nothing but single messages, and ends with the output.
func FuzzPump(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n",
		`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":` + chunkHi + `}}` + "\n\n",
		`{"method":"session/request_permission","id":"a","params":{"toolCall":{"toolCallId":"x"}}}` + "\n",
		"\xff\n", `{"id":null,"METHOD":"session/update","method":"x"}`, `{"jsonrpc":"2.0","method":"$/cancel_request","params":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		from, to := io.Pipe()
		p := &pump{
			from: bytes.NewReader(output), to: to, listener: &sink{},
			flow: make(chan struct{}, 1), open: make(chan struct{}, 1<<16), end: make(chan struct{}),
		}
		passed := make(chan []byte, 1)
		go func() {
			b, err := io.ReadAll(from)
			if err != nil {
				b = nil
			}
			passed <- b
		}()
		err := p.run()
		if err != nil && !fault.Is(err, fault.Protocol) {
			t.Fatal(err)
		}
		_ = to.Close()
		for l := range bytes.Lines(<-passed) {
			var m map[string]json.RawMessage
			if json.Unmarshal(l, &m) != nil || string(m["method"]) == `"session/update"` && m["id"] == nil {
				t.Fatalf("%q was passed on", l)
			}
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(`{"session":"s","made":1}` + "\narchive"))
	f.Add([]byte(`{"session":"s","made":1,"Session":"t"}` + "\n"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		s, err := decodeSnapshot(payload)
		if err != nil {
			if !fault.Is(err, fault.PersistenceFailed) {
				t.Fatal(err)
			}
			return
		}
		again, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		s2, err := decodeSnapshot(again)
		if err != nil || s2.header != s.header || !bytes.Equal(s2.archive, s.archive) {
			t.Fatalf("%+v, %v", s2, err)
		}
	})
}

func FuzzDecodePreset(f *testing.F) {
	f.Add([]byte(`{"name":"x1","made_for":[{"npm":"a","version":"1"}],"command":"x","model_wire":"gemini","mcp":"none","state":{"include":["a"],"exclude":[]},"permission":"ask"}`))
	f.Add([]byte(`{"name":"x1","home_files":{"a":"${MODEL}","b":{"c":"${MODEL_KEY}"}}}`))
	vars := variables{varModel: `a"b"`, varModelKey: "k", varMCPURL: "http://x", varModelBaseURL: "http://y", varModelBaseURLV1: "http://y/v1"}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodePreset(bytes.NewReader(data))
		if err != nil {
			return
		}
		for name, raw := range p.HomeFiles {
			text, err := vars.homeFile(raw)
			if err != nil || !relative(name) {
				t.Fatalf("%s: %v", name, err)
			}
			if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte(`"`)) && !json.Valid([]byte(text)) {
				t.Fatalf("%s is no JSON any more: %s", name, text)
			}
		}
	})
}
