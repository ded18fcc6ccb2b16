package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/deploy/local/internal/apiclient"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an API whose runs say what a test says.
type world struct {
	t        *testing.T
	answer   []event.Data
	hold     bool // the stream stays open after the answer
	messages []string
	conv     []string
	cancels  int
	// asks are the questions that wait, the first one first, and resumed the answers.
	asks    []event.InterruptRequested
	resumed []string
	// begun is called once, when a run begins.
	begun func()
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/api/v1/runs":
		var req apiclient.StartRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			w.t.Error(err)
		}
		if req.Message == "refuse" {
			fault.WriteHTTP(rw, fault.New(fault.AccessDenied, "test"))
			return
		}
		w.messages, w.conv = append(w.messages, req.Message), append(w.conv, req.ConversationID)
		if w.begun != nil {
			w.begun()
			w.begun = nil
		}
		_, _ = fmt.Fprint(rw, `{"run_id":"r","binding_id":"hs_1","epoch":0}`)
	case "/api/v1/conversations/c/interrupt-state":
		if q := r.URL.Query().Get("agent_id"); q != "demo" {
			w.t.Errorf("agent %q", q)
		}
		if len(w.asks) == 0 {
			_, _ = fmt.Fprint(rw, `{"interrupt":null}`)
			return
		}
		body, err := event.InterruptBody(w.asks[0])
		if err != nil {
			w.t.Error(err)
		}
		_, _ = fmt.Fprintf(rw, `{"run_id":"r","revision":7,"interrupt":%s}`, body)
	case "/api/v1/runs/r:resume":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.t.Error(err)
		}
		w.resumed, w.asks = append(w.resumed, string(body)), w.asks[1:]
		_, _ = fmt.Fprint(rw, `{"run_id":"r","binding_id":"hs_1","epoch":0}`)
	case "/api/v1/runs/r:cancel":
		w.cancels++
		_, _ = fmt.Fprint(rw, `{"cancelled":true,"confirmed":true,"side_effect_status":"none"}`)
	default:
		for i, d := range w.answer {
			raw, err := json.Marshal(event.Draft{Data: d}.Event("r", "c", uint64(i), time.Unix(1, 0).UTC()))
			if err != nil {
				w.t.Error(err)
			}
			_, _ = fmt.Fprintf(rw, "data: %s\n\n", raw)
		}
		_ = http.NewResponseController(rw).Flush()
		if w.hold {
			<-r.Context().Done()
		}
	}
}

func talk(t *testing.T, w *world, in string, change func(*Config)) (out, people string, err error) {
	t.Helper()
	w.t = t
	ts := httptest.NewServer(w)
	defer ts.Close()
	api, err := apiclient.New(ts.URL, func() (string, error) { return "token", nil })
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	var o, p strings.Builder
	cfg := Config{API: api, Agent: "demo", Conversation: "c", In: strings.NewReader(in), Out: &o, People: &p}
	if change != nil {
		change(&cfg)
	}
	err = Run(t.Context(), cfg)
	return o.String(), p.String(), err
}

func end() event.Data {
	return event.RunFinished{StopReason: "stop", ThreadState: event.Committed(1, "snap")}
}

func TestAConversation(t *testing.T) {
	w := &world{answer: []event.Data{
		event.RunStarted{HarnessID: "native", AdapterVersion: "1.0.0"},
		event.ToolStarted{ToolCallID: "c", ToolName: "fs.read_text_file", Arguments: `{"path":"a"}`},
		event.ToolError{ToolCallID: "c", Code: "tool_failed", Message: "no such file"},
		event.TextStarted{MessageID: "m"},
		event.TextDelta{MessageID: "m", Delta: "Hel"},
		event.TextDelta{MessageID: "m", Delta: "lo\nyou"},
		event.TextFinished{MessageID: "m"},
		end(),
	}}
	out, people, err := talk(t, w, "hi\n\n  again  \n", func(c *Config) { c.Prompt = "> " })
	if err != nil {
		t.Fatal(err)
	}
	if want := "Hello\nyou\n"; out != want+want {
		t.Errorf("stdout %q", out)
	}
	tool := "[fs.read_text_file {\"path\":\"a\"}]\n[failed: tool_failed: no such file]\n"
	if want := "> " + tool + "> > " + tool + "> "; people != want {
		t.Errorf("stderr %q, want %q", people, want)
	}
	if !slices.Equal(w.messages, []string{"hi", "again"}) || !slices.Equal(w.conv, []string{"c", "c"}) {
		t.Errorf("%q in %q", w.messages, w.conv)
	}
}

func TestAnInterruptedTurnIsCancelled(t *testing.T) {
	w := &world{hold: true, answer: []event.Data{event.RunStarted{HarnessID: "native", AdapterVersion: "1.0.0"}, event.TextStarted{MessageID: "m"}, event.TextDelta{MessageID: "m", Delta: "on and on"}}}
	pressed := make(chan struct{})
	out, people, err := talk(t, w, "hi\n", func(c *Config) {
		inner := c.Out
		c.Out = writerFunc(func(p []byte) (int, error) { close(pressed); return inner.Write(p) })
		c.Interrupt = func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			go func() {
				select {
				case <-pressed:
					cancel()
				case <-ctx.Done():
				}
			}()
			return ctx, cancel
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.cancels != 1 || out != "on and on" || !strings.Contains(people, "[cancelled; side effects: none]") {
		t.Errorf("%d cancels, %q, %q", w.cancels, out, people)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestWhatEndsAChat(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer []event.Data
		in     string
		want   string
	}{
		{"a refusal", []event.Data{end()}, "refuse\n", "access_denied"},
		{"a message without end", []event.Data{end()}, strings.Repeat("x", maxMessage+1), "262144"},
	} {
		if _, _, err := talk(t, &world{answer: c.answer}, c.in, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, _, err := talk(t, &world{}, "", nil); err != nil {
		t.Errorf("the end of the input: %v", err)
	}
}

func TestALongArgumentIsShortened(t *testing.T) {
	if got := shorten(strings.Repeat("ä", maxArguments)); len(got) > maxArguments+8 || !strings.HasSuffix(got, "ä …") {
		t.Errorf("%q", got)
	}
}

func TestATerminalObeysNothing(t *testing.T) {
	if got := clean("a\x1b[2J\u009b31m\tb\r\nc\x00\x7f"); got != "a[2J31m\tb\nc" {
		t.Errorf("%q", got)
	}
}
