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
	"cofferdam.dev/services/worker/internal/native/model"
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

// FuzzFailure: whatever a model or the proxy answers in the place of a stream, the
// failure has a known code and nothing of the body in it, and only what may pass is
// asked again.
func FuzzFailure(f *testing.F) {
	for _, body := range []string{
		`{"error":{"code":"rate_limited","message":"x"}}`, `{"error":{"type":"overloaded_error"}}`, `{"code":429,"message":"too long","incident_id":"inc-1"}`,
		`{"error":{"code":"insufficient_quota"}}`, `{"error":{"code":"stale_lease"}}`, `{"error":null}`, `[]`, ``,
	} {
		f.Add(429, body, "7")
		f.Add(400, body, "-1")
		f.Add(529, body, "99999999999999999999")
	}
	const canary = "canary-of-a-provider"
	f.Fuzz(func(t *testing.T, status int, body, after string) {
		body = strings.ReplaceAll(body, "x", canary)
		h := http.Header{"Retry-After": {after}}
		for _, err := range []error{model.Refused(status, h, []byte(body)), model.Reported([]byte(body))} {
			failed, ok := errors.AsType[*model.FailureError](err)
			if !ok || !failed.Fault.Code().Known() {
				t.Fatalf("%q came to %v", body, err)
			}
			if strings.Contains(err.Error(), canary) {
				t.Fatalf("%q is in %v", body, err)
			}
			if failed.Throttled && !failed.Fault.Code().Retryable() {
				t.Fatalf("%q is asked again after %s", body, failed.Fault.Code())
			}
			if wait := failed.Fault.RetryAfter(); wait < 0 || wait > time.Hour {
				t.Fatalf("%q waits for %v", after, wait)
			}
		}
	})
}

// second runs another turn on what the first one has left.
func second(t *testing.T, s *stand) error {
	t.Helper()
	got := s.alone(t, "run-2", time.Minute)
	if _, ok := got.end().(event.RunFinished); !ok {
		return errors.New("the next turn ended by " + strings.TrimSpace(got.types()))
	}
	return nil
}
