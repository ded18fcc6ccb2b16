package mcphttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"data: a\n\n":    "a",
		"data:a\r\n\r\n": "a",
		": c\nid: 1\nretry: 5\ndata:\n\ndata: b\n\n": "b",
		"event: message\ndata: a\ndata: b\n\n":       "a\nb",
		"event: other\ndata: a\n\ndata: b\n\n":       "b",
		"data\n\ndata: b\n\n":                        "b",
		"data: a":                                    "",
		"data: a\n":                                  "",
		"":                                           "",
	} {
		got, err := newEvents(strings.NewReader(text), 1<<10).next()
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
	if _, err := newEvents(strings.NewReader(strings.Repeat("data: a\n", 1000)), 1<<10).next(); !errors.Is(err, errTooLarge) {
		t.Error(err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1\ndata: {}\n\n: x\r\ndata: a\ndata: b\n\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		const most = 1 << 12
		events := newEvents(bytes.NewReader(raw), most)
		total := 0
		for {
			data, err := events.next()
			if err != nil {
				break
			}
			if total += len(data); len(data) == 0 || total > most || total > len(raw) {
				t.Fatalf("%q gives %d bytes", raw, total)
			}
		}
	})
}

// A connection that comes about too late carries nothing.
func TestNothingLeavesAfterASlowDial(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.NewDecoder(r.Body).Decode(&q) != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		result := `{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`
		switch q.Method {
		case "tools/call":
			arrived.Add(1)
			result = `{"content":[]}`
		case "initialize":
		case "server/discover":
			w.WriteHeader(http.StatusBadRequest)
			return
		default:
			w.WriteHeader(http.StatusAccepted)
			return
		}
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":` + result + `}`))
	}))
	t.Cleanup(s.Close)
	slow := &slowly{RoundTripper: &http.Transport{DisableKeepAlives: true}}
	srv, err := Connect(t.Context(), Config{URL: s.URL, Transport: slow, ConnectTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	slow.delay.Store(int64(50 * time.Millisecond))
	_, err = srv.Call(t.Context(), "a", json.RawMessage(`{}`), time.Now().Add(20*time.Millisecond))
	if !errors.Is(err, mcpcall.ErrNotSent) || arrived.Load() != 0 {
		t.Errorf("%v, %d arrived", err, arrived.Load())
	}
	if _, err = srv.Call(t.Context(), "a", json.RawMessage(`{}`), time.Now().Add(20*time.Second)); err != nil || arrived.Load() != 1 {
		t.Errorf("%v, %d arrived", err, arrived.Load())
	}
}

// slowly takes its time before it has a connection.
type slowly struct {
	http.RoundTripper

	delay atomic.Int64
}

func (s *slowly) RoundTrip(r *http.Request) (*http.Response, error) {
	timer := time.NewTimer(time.Duration(s.delay.Load()))
	defer timer.Stop()
	<-timer.C
	return s.RoundTripper.RoundTrip(r)
}
