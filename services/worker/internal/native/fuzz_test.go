package native

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
)

var at = time.Unix(1, 0)

// fuzzStream: whatever bytes a model streams, the run is one valid lifecycle with
// one terminal, and what was committed can be read again and sent.
func fuzzStream(f *testing.F, w wire) {
	f.Helper()
	for _, x := range fixtures() {
		f.Add(w.stream(x.answer))
		f.Add(w.stream(x.answer)[:len(w.stream(x.answer))/2])
	}
	f.Add([]byte("event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"x\"}}\n\n"))
	f.Add([]byte("event: x\r\ndata: {\r\n\r\n: comment\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		asked := 0
		s := bubble(t, w, roundTrip(func(r *http.Request) (*http.Response, error) {
			if asked++; asked > 1 {
				body = w.stream(reply{text: "end", stop: "stop"})
			}
			return &http.Response{
				StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(body)),
			}, nil
		}), options(`{"model_retries":0}`))
		switch d := s.alone(t, "run-1", time.Minute).end().(type) {
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

func FuzzOpenAIChat(f *testing.F) { fuzzStream(f, chatWire()) }

func FuzzOpenAIResponses(f *testing.F) { fuzzStream(f, responsesWire()) }

func FuzzAnthropicMessages(f *testing.F) { fuzzStream(f, anthropicWire()) }

// second runs another turn on what the first one has left.
func second(t *testing.T, s *stand) error {
	t.Helper()
	got := s.alone(t, "run-2", time.Minute)
	if _, ok := got.end().(event.RunFinished); !ok {
		return errors.New("the next turn ended by " + strings.TrimSpace(got.types()))
	}
	return nil
}
