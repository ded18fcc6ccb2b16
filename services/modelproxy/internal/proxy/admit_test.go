package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

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
