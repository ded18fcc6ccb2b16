package native

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
)

// FuzzModelStream: whatever bytes a model streams, the run is one valid lifecycle
// with one terminal, and what was committed can be read again and sent.
func FuzzModelStream(f *testing.F) {
	sse := func(chunks ...string) []byte {
		var b bytes.Buffer
		for _, c := range chunks {
			b.WriteString("data: " + c + "\n\n")
		}
		return b.Bytes()
	}
	f.Add(sse(content("hi"), finish("stop"), tokens(1, 2), done))
	f.Add(sse(reasoning("x"), toolDelta(0, "a", "fs_list", "{}"), finish("tool_calls"), done))
	f.Add(sse(toolDelta(0, "a", "fs_list", `{"a`), toolDelta(0, "b", "\u00e4", `[]`), finish("length"), done))
	f.Add(sse(`{"error":{"message":"x"}}`))
	f.Add(sse(delta(`"content":"\ud83d"`), `{"choices":[{"index":5,"delta":{}}]}`))
	f.Add([]byte("event: x\r\ndata: {\r\n\r\n: comment\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		s := newStand(t)
		asked := 0
		s.model.client.Transport = roundTrip(func(*http.Request) (*http.Response, error) {
			if asked++; asked > 1 {
				body = sse(content("end"), finish("stop"), done)
			}
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(body)),
			}, nil
		})
		m := event.NewMachine("run-1", conversation, event.Bounds{})
		r := s.start(t, "run-1", "hi")
		for {
			batch, err := r.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			for _, e := range batch {
				must(t, m.Accept(e))
			}
		}
		switch end, _ := m.Terminal(); d := end.Data.(type) {
		case event.RunFinished:
			must(t, second(t, s))
		case event.RunError:
			if d.Code == "internal" || d.Code == "protocol" {
				t.Fatalf("a model's stream ended the run as %s", d.Code)
			}
		default:
			t.Fatalf("the run ended by %#v", d)
		}
	})
}

// second runs another turn on what the first one has left.
func second(t *testing.T, s *stand) error {
	t.Helper()
	got := s.run(t, "run-2", "again")
	if _, ok := got.end().(event.RunFinished); !ok {
		return errors.New("the next turn ended by " + strings.TrimSpace(got.types()))
	}
	return nil
}
