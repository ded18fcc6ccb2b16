package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func document(t *testing.T, kids ...string) []byte {
	t.Helper()
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, kid := range kids {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: kid})
	}
	raw, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// source is what keys are read from, with a clock.
type source struct {
	reads int
	raw   []byte
	err   error
	at    time.Time
}

func (s *source) keys() *cachedKeys {
	return &cachedKeys{now: func() time.Time { return s.at }, read: func(context.Context) ([]byte, error) {
		s.reads++
		return s.raw, s.err
	}}
}

func (s *source) want(t *testing.T, k Keys, kid string, found, reads int) {
	t.Helper()
	got, err := k.Keys(t.Context(), kid)
	if err != nil || len(got) != found || s.reads != reads {
		t.Fatalf("kid %q: %d keys, %d reads, %v; want %d and %d", kid, len(got), s.reads, err, found, reads)
	}
}

// Whoever sends unknown kids does not make the issuer be asked for each.
func TestUnknownKidsReadTheSetSeldom(t *testing.T) {
	t.Parallel()
	s := &source{raw: document(t, "a"), at: time.Unix(1_000_000, 0)}
	k := s.keys()
	s.want(t, k, "a", 1, 1)
	for range 100 {
		s.want(t, k, "nobody", 0, 1)
	}
	s.at = s.at.Add(refetchAfter - time.Nanosecond)
	s.want(t, k, "nobody", 0, 1)
	s.at = s.at.Add(time.Nanosecond)
	s.want(t, k, "nobody", 0, 2)
	s.want(t, k, "nobody", 0, 2)
	s.want(t, k, "a", 1, 2)
}

// A key that the issuer has added is found, and one that it has withdrawn is not
// used for long.
func TestRotation(t *testing.T) {
	t.Parallel()
	s := &source{raw: document(t, "a"), at: time.Unix(1_000_000, 0)}
	k := s.keys()
	s.want(t, k, "a", 1, 1)
	s.raw, s.at = document(t, "a", "b"), s.at.Add(refetchAfter)
	s.want(t, k, "b", 1, 2)
	s.raw, s.at = document(t, "b"), s.at.Add(keepFor-time.Nanosecond)
	s.want(t, k, "a", 1, 2)
	s.at = s.at.Add(time.Nanosecond)
	s.want(t, k, "a", 0, 3)
	s.want(t, k, "b", 1, 3)
}

// An issuer that is away, or says nonsense, locks nobody out who was known.
func TestASetThatCannotBeReadAgainStaysInUse(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*source){
		"away":          func(s *source) { s.err = errors.New("away") },
		"nonsense":      func(s *source) { s.raw = []byte("<html>") },
		"a private key": func(s *source) { s.raw = []byte(`{"keys":[{"kty":"oct","kid":"a","k":"AAAA"}]}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &source{raw: document(t, "a"), at: time.Unix(1_000_000, 0)}
			k := s.keys()
			s.want(t, k, "a", 1, 1)
			fail(s)
			s.at = s.at.Add(keepFor)
			s.want(t, k, "a", 1, 2)
			s.want(t, k, "a", 1, 2)
			s.at = s.at.Add(refetchAfter)
			s.want(t, k, "nobody", 0, 3)
			s.want(t, k, "nobody", 0, 3)
		})
	}
}

func TestASetThatWasNeverReadIsAnError(t *testing.T) {
	t.Parallel()
	s := &source{err: errors.New("away"), at: time.Unix(1_000_000, 0)}
	k := s.keys()
	if got, err := k.Keys(t.Context(), "a"); err == nil || got != nil {
		t.Fatalf("%v, %v", got, err)
	}
	s.err, s.raw = nil, document(t, "a")
	s.at = s.at.Add(time.Hour)
	s.want(t, k, "a", 1, 2)
}

// Everybody waits for one read.
func TestOneReadServesAll(t *testing.T) {
	t.Parallel()
	s := &source{raw: document(t, "a"), at: time.Unix(1_000_000, 0)}
	k := s.keys()
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if got, err := k.Keys(t.Context(), "a"); err != nil || len(got) != 1 {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	wg.Wait()
	if s.reads != 1 {
		t.Errorf("%d reads", s.reads)
	}
}

func TestFileKeys(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "jwks.json")
	k := FileKeys(file)
	if _, err := k.Keys(t.Context(), "a"); err == nil {
		t.Fatal("a file that is not there has keys")
	}
	for _, raw := range [][]byte{[]byte(strings.Repeat(" ", maxJWKSBytes+1)), document(t, "a")} {
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := FileKeys(file).Keys(t.Context(), "a")
		if large := len(raw) > maxJWKSBytes; large != (err != nil) || large == (len(got) == 1) {
			t.Fatalf("%d bytes: %v, %v", len(raw), got, err)
		}
	}
}

func TestURLKeys(t *testing.T) {
	t.Parallel()
	raw := document(t, "a")
	var redirected atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /good", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) })
	mux.HandleFunc("GET /missing", http.NotFound)
	mux.HandleFunc("GET /moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	mux.HandleFunc("GET /elsewhere", func(w http.ResponseWriter, _ *http.Request) {
		redirected.Store(true)
		_, _ = w.Write(raw)
	})
	mux.HandleFunc("GET /large", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat(" ", maxJWKSBytes)))
		_, _ = w.Write(raw)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client := server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for path, ok := range map[string]bool{"/good": true, "/missing": false, "/moved": false, "/large": false} {
		got, err := URLKeys(client, server.URL+path).Keys(t.Context(), "a")
		if ok != (err == nil) || ok != (len(got) == 1) {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	if redirected.Load() {
		t.Error("a redirect was followed")
	}
}

// A caller who names an unknown kid and hangs up does not hold off a rotated key.
func TestACallerWhoHangsUpDoesNotSpoilTheRead(t *testing.T) {
	t.Parallel()
	first, second := document(t, "a"), document(t, "a", "b")
	at := time.Unix(1_000_000, 0)
	raw := first
	k := &cachedKeys{now: func() time.Time { return at }, read: func(ctx context.Context) ([]byte, error) { return raw, ctx.Err() }}
	if got, err := k.Keys(t.Context(), "a"); err != nil || len(got) != 1 {
		t.Fatalf("%d keys, %v", len(got), err)
	}
	raw, at = second, at.Add(refetchAfter)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := k.Keys(gone, "b"); err != nil || len(got) != 1 {
		t.Errorf("%d keys of the rotated set, %v; the request's end must not end the read", len(got), err)
	}
}

// While the issuer was never reached, not every request waits for it by itself.
func TestAnIssuerThatIsDownIsAskedOnceASecond(t *testing.T) {
	t.Parallel()
	s := &source{err: errors.New("away"), at: time.Unix(1_000_000, 0)}
	k := s.keys()
	for range 50 {
		if _, err := k.Keys(t.Context(), "a"); err == nil {
			t.Fatal("no error")
		}
	}
	if s.reads != 1 {
		t.Errorf("%d reads, want 1", s.reads)
	}
	s.at, s.err, s.raw = s.at.Add(retryAfter), nil, document(t, "a")
	s.want(t, k, "a", 1, 2)
}
