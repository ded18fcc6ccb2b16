package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
)

// Whatever is let through names the upstream's model and no address, and is
// read alike by a decoder that does not mind the case of keys.
func FuzzAdmit(f *testing.F) {
	for _, seed := range []string{
		`{"model":"main","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"main","messages":[{"content":[{"type":"image_url","image_url":{"url":"data:,"}}]}],"tools":[{"type":"function"}]}`,
		`{"model":"main","messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x","URL":"data:"}}]}]}`,
		`{"model":"main","Model":"x","messages":[{}]}`, `{"mod\u0065l":"main","messages":[null]}`, `null`, `[`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		req, err := readRequest(httptest.NewRecorder(), r, Limits{}.withDefaults())
		if err == nil {
			err = req.admit("main", nil)
		}
		if err != nil {
			if c := fault.CodeOf(err); c != fault.InvalidRequest && c != fault.CapabilityScope && c != fault.RequestTooLarge {
				t.Fatalf("refused with %s: %v", c, err)
			}
			return
		}
		out, err := req.encode("upstream")
		if err != nil {
			t.Fatal(err)
		}
		var lax struct {
			Model    string
			Stream   bool
			Messages []struct{ Content any }
			Tools    []struct{ Type string }
		}
		if err := json.Unmarshal(out, &lax); err != nil {
			t.Fatalf("sent on: %s: %v", out, err)
		}
		if lax.Model != "upstream" || lax.Stream != req.stream {
			t.Fatalf("read as model %q, stream %v: %s", lax.Model, lax.Stream, out)
		}
		for _, tool := range lax.Tools {
			if tool.Type != "function" && tool.Type != "custom" {
				t.Fatalf("sent on: %s", out)
			}
		}
		for _, m := range lax.Messages {
			parts, _ := m.Content.([]any)
			for _, p := range parts {
				noAddress(t, p)
			}
		}
	})
}

func noAddress(t *testing.T, part any) {
	t.Helper()
	keys, _ := part.(map[string]any)
	for key, value := range keys {
		if !strings.EqualFold(key, "image_url") {
			continue
		}
		image, _ := value.(map[string]any)
		for k, v := range image {
			if url := fmt.Sprint(v); strings.EqualFold(k, "url") && !strings.HasPrefix(url, "data:") {
				t.Fatalf("an address was let through: %v", part)
			}
		}
		if image == nil && value != nil {
			t.Fatalf("an address was let through: %v", part)
		}
	}
}

func TestOnlyLoopbackIsDialled(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "127.9.9.9:80": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true,
		"10.0.0.1:80": false, "169.254.169.254:80": false, "[fe80::1]:80": false, "0.0.0.0:80": false, "8.8.8.8:80": false, "x": false,
	} {
		if err := onlyLoopback("tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestNoProxyOfTheEnvironment(t *testing.T) {
	t.Parallel()
	if newTransport(Limits{}.withDefaults(), nil, false).Proxy != nil {
		t.Error("the transport asks for a proxy: a proxy of the environment would see keys and messages")
	}
}

func TestSecretPrintsAsNothing(t *testing.T) {
	t.Parallel()
	s := secret{value: "sk-canary-0123456789abcdef"}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", s)
	printed := fmt.Sprintf("%v %+v %s %#v %v %+v", s, s, s, s, []secret{s}, struct{ K secret }{s}) + log.String()
	if strings.Contains(printed, "canary") {
		t.Error(printed)
	}
}

func TestWithoutAliasNothingIsServed(t *testing.T) {
	t.Parallel()
	p, err := New(Config{Aliases: map[string]Alias{"main": {BaseURL: "https://x.example"}}}, Deps{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, ctx := range []context.Context{t.Context(), WithAlias(t.Context(), "")} {
		rec := httptest.NewRecorder()
		p.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodPost, Path, strings.NewReader("{}")))
		if rec.Code != http.StatusUnauthorized || !strings.Contains(rec.Body.String(), "capability_missing") {
			t.Errorf("%d %s", rec.Code, rec.Body.String())
		}
	}
}

func TestPanicOfAnInProcessModelIsACut(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.HandlerFunc{
		"before it began": func(http.ResponseWriter, *http.Request) { panic("canary") },
		"in its answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {}\n\n"))
			panic("canary")
		},
	} {
		var log strings.Builder
		p, err := New(Config{Aliases: map[string]Alias{"main": {Kind: KindDemo}}}, Deps{Logger: slog.New(slog.NewTextHandler(&log, nil)), Demo: h})
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(WithAlias(t.Context(), "main"), http.MethodPost, Path, strings.NewReader(`{"model":"main","stream":true,"messages":[{}]}`))
		req.Header.Set("Content-Type", "application/json")
		aborted := func() (aborted bool) {
			defer func() { aborted = recover() == http.ErrAbortHandler }() //nolint:errorlint // the value that net/http compares
			p.ServeHTTP(rec, req)
			return false
		}()
		if aborted != (rec.Body.String() == "data: {}\n\n") || !aborted && rec.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: aborted %v, %d %s", name, aborted, rec.Code, rec.Body.String())
		}
		if !strings.Contains(log.String(), "reason=demo_model_panicked") || strings.Contains(log.String(), "canary") {
			t.Errorf("%s: logged %s", name, log.String())
		}
	}
}

func TestInProcessAbortIsNoCleanEnd(t *testing.T) {
	t.Parallel()
	trip := inProcess{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("part"))
		panic(http.ErrAbortHandler)
	})}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://demo"+Path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := trip.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if data, err := io.ReadAll(res.Body); string(data) != "part" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", data, err)
	}
}

// Refused before a packet leaves, whatever a name resolves to.
func TestLoopbackTransportDialsNothingElse(t *testing.T) {
	t.Parallel()
	c, err := newTransport(Limits{}.withDefaults(), nil, true).DialContext(t.Context(), "tcp", "192.0.2.1:80")
	if !errors.Is(err, errDial) {
		if c != nil {
			_ = c.Close()
		}
		t.Errorf("dialled: %v", err)
	}
}
