package fetch_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/services/toolbroker/internal/egress"
	"cofferdam.dev/services/toolbroker/internal/fetch"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func port(t *testing.T, s string) uint16 {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(n)
}

type result struct {
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	IsError bool `json:"isError"`
}

func get(t *testing.T, f *fetch.Fetcher, u string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args, err := json.Marshal(map[string]string{"url": u})
	if err != nil {
		t.Fatal(err)
	}
	a, err := f.Call(ctx, fetch.Tool, args, time.Time{})
	if err != nil {
		t.Fatal(u, err)
	}
	var r result
	if err := json.Unmarshal(a.Result, &r); err != nil || len(r.Content) != 1 {
		t.Fatalf("%s: %s %v", u, a.Result, err)
	}
	return r
}

func TestFetch(t *testing.T) {
	t.Parallel()
	var otherHits atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { otherHits.Add(1) }))
	t.Cleanup(other.Close)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
			t.Errorf("%s with %v", r.Method, r.Header)
		}
		switch r.URL.Path {
		case "/text":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write([]byte("<p>a\xffb</p>"))
		case "/image":
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write([]byte("png"))
		case "/missing":
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte("no such page"))
		case "/big":
			w.Header().Set("Content-Type", "text/plain")
			for range 100 {
				if _, err := w.Write([]byte(strings.Repeat("x", 1<<20))); err != nil {
					return
				}
			}
		case "/here":
			http.Redirect(w, r, "/text", http.StatusFound)
		case "/metadata":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusFound)
		}
	}))
	t.Cleanup(s.Close)
	f := fetch.New(egress.Policy{Hosts: []string{"127.0.0.1", "metadata.example"}, Ports: []uint16{port(t, s.URL), port(t, other.URL)}, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(func() { _ = f.Close() })
	for path, want := range map[string]string{"/text": "<p>a\ufffdb</p>", "/here": "<p>a\ufffdb</p>"} {
		if r := get(t, f, s.URL+path); r.IsError || r.Content[0].Text != want {
			t.Errorf("%s: %+v", path, r)
		}
	}
	if r := get(t, f, s.URL+"/big"); r.IsError || len(r.Content[0].Text) != 1<<20 {
		t.Errorf("big: %d bytes", len(r.Content[0].Text))
	}
	for u, want := range map[string]string{
		s.URL + "/image":             "no text",
		s.URL + "/missing":           "HTTP 404\n\nno such page",
		s.URL + "/metadata":          "not followed",
		s.URL + "/away":              "not followed",
		s.URL + "/nothing":           "no text",
		"https://elsewhere.example/": "not allowed",
		strings.Replace(s.URL, "127.0.0.1", "localhost", 1) + "/text": "not allowed",
		strings.Replace(s.URL, "127.0.0.1", "127.0.0.2", 1) + "/text": "not allowed",
		"http://127.0.0.1:1/":    "not allowed",
		"file:///etc/passwd":     "neither https nor http",
		"https://u:p@127.0.0.1/": "a user in it",
		"/text":                  "neither https nor http",
		"":                       "neither https nor http",
	} {
		if r := get(t, f, u); !r.IsError || !strings.Contains(r.Content[0].Text, want) || strings.Contains(r.Content[0].Text, "169.254") {
			t.Errorf("%s: %+v", u, r)
		}
	}
	if otherHits.Load() != 0 {
		t.Error("a redirect led to another origin")
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel() // it has arrived
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	f := fetch.New(egress.Policy{Hosts: []string{"127.0.0.1"}, Ports: []uint16{port(t, s.URL)}, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(func() { _ = f.Close() })
	args := json.RawMessage(`{"url":"` + s.URL + `"}`)
	if _, err := f.Call(ctx, fetch.Tool, args, time.Time{}); !errors.Is(err, mcpcall.ErrNoAnswer) {
		t.Error(err)
	}
	if _, err := f.Call(t.Context(), fetch.Tool, args, time.Now().Add(-time.Second)); !errors.Is(err, mcpcall.ErrNotSent) {
		t.Error(err)
	}
}
