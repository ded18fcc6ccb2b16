package credential

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type clock struct{ now atomic.Int64 }

func (c *clock) Now() time.Time          { return time.Unix(0, c.now.Load()) }
func (c *clock) advance(d time.Duration) { c.now.Add(int64(d)) }

// counted is a source of numbered tokens.
type counted struct {
	n    atomic.Int32
	life time.Duration
	fail atomic.Bool
	now  func() time.Time
	wait chan struct{}
}

func (c *counted) Keep() time.Duration { return time.Minute }

func (c *counted) Fetch(ctx context.Context) (Token, error) {
	n := c.n.Add(1)
	if c.wait != nil {
		select {
		case <-c.wait:
		case <-ctx.Done():
			return Token{}, ctx.Err()
		}
	}
	if c.fail.Load() {
		return Token{}, errors.New("it is down")
	}
	t := Token{Value: fmt.Sprintf("token-%04d", n)}
	if c.life > 0 {
		t.Expires = c.now().Add(c.life)
	}
	return t, nil
}

func TestATokenIsKeptUntilShortlyBeforeItExpires(t *testing.T) {
	t.Parallel()
	c := &clock{}
	src := &counted{life: time.Hour, now: c.Now}
	k := NewKeeper(src, c.Now)
	get := func() string {
		tok, err := k.Token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return tok.Value
	}
	first := get()
	c.advance(58 * time.Minute)
	if get() != first {
		t.Error("fetched although it holds")
	}
	c.advance(time.Minute)
	second := get()
	if second == first {
		t.Error("used although it expires within the minute")
	}
	k.Refused(first) // an old one
	if get() != second {
		t.Error("a token was dropped that nobody refused")
	}
	k.Refused(second)
	third := get()
	if third == second {
		t.Error("used although it was refused")
	}
	for _, secret := range []string{first, second, third} {
		if got := k.Redactor().Cut("is " + secret); strings.Contains(got, secret) {
			t.Error(got)
		}
	}
	src.life = 10 * time.Second
	k.Refused(third)
	_ = get()
	before := src.n.Load()
	c.advance(8 * time.Second)
	_ = get()
	c.advance(1500 * time.Millisecond)
	_ = get()
	if src.n.Load() != before+1 {
		t.Errorf("fetched %d times", src.n.Load()-before)
	}
}

func TestOneFetchAtATime(t *testing.T) {
	t.Parallel()
	c := &clock{}
	src := &counted{now: c.Now, wait: make(chan struct{})}
	k := NewKeeper(src, c.Now)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if tok, err := k.Token(t.Context()); err != nil || tok.Value != "token-0001" {
				t.Error(tok, err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for src.n.Load() == 0 {
		select {
		case <-t.Context().Done():
			t.Fatal("nobody fetches")
		default:
		}
	}
	if _, err := k.Token(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that went away: %v", err)
	}
	close(src.wait)
	all.Wait()
	if n := src.n.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
	src.fail.Store(true)
	k.Refused("token-0001")
	for range 10 {
		if _, err := k.Token(t.Context()); err == nil {
			t.Error("a token out of nowhere")
		}
	}
	if n := src.n.Load(); n != 2 {
		t.Errorf("a source that is down was asked %d times", n-1)
	}
	src.fail.Store(false)
	c.advance(2 * time.Second)
	if _, err := k.Token(t.Context()); err != nil {
		t.Errorf("it does not recover: %v", err)
	}
}

func TestTokensOfNoUse(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for _, tok := range []Token{{}, {Value: "short"}, {Value: "with\nline-break"}, {Value: "tok\x00en-123"}, {Value: strings.Repeat("x", maxToken+1)}, {Value: "token-0123", Expires: now}} {
		if usable(tok, now) == nil {
			t.Errorf("%.20q is used", tok.Value)
		}
	}
}

func program(t *testing.T, what string) Command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Command{Args: []string{self, asProgram, what}}
}

func TestCommand(t *testing.T) {
	t.Setenv("PARENT_SECRET", "1")
	for what, want := range map[string]string{
		"tok-0123456789\n":           "tok-0123456789",
		"env":                        "environment-0",
		`{"token":"tok-0123456789"}`: "tok-0123456789",
		`{"token":"tok-0123456789","expires_at":"2099-01-01T00:00:00Z"}`: "tok-0123456789",
	} {
		tok, err := program(t, what).Fetch(t.Context())
		if err != nil || tok.Value != want || strings.Contains(what, "2099") != !tok.Expires.IsZero() {
			t.Errorf("%s: %+v %v", what, tok, err)
		}
	}
	for _, what := range []string{"fail", "hang", "flood", `{"token":5}`, `{"secret":"tok-0123456789"}`, `{"token":"tok-0123456789","expires_at":"soon"}`} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if what == "hang" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		}
		tok, err := program(t, what).Fetch(ctx)
		if err == nil || strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%s: %+v %v", what, tok, err)
		}
		cancel()
	}
	k := NewKeeper(program(t, "late"), time.Now)
	if _, err := k.Token(t.Context()); err == nil {
		t.Error("a token that has expired is used")
	}
}

const clientSecret = "s3cret/with+signs"

func TestClientCredentials(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(clientSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	var answer atomic.Pointer[string]
	var status atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		body, err := io.ReadAll(r.Body)
		//nolint:gosec // of this test alone
		if err != nil || id != "broker" || secret != "s3cret%2Fwith%2Bsigns" || string(body) != "grant_type=client_credentials&resource=https%3A%2F%2Fmcp.example%2Fmcp&scope=a+b" {
			t.Errorf("asked as %s with %s, %v", id, body, err)
		}
		w.Header().Set("Content-Type", "application/json;charset=UTF-8")
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, *answer.Load())
	}))
	t.Cleanup(s.Close)
	c := &clock{}
	src := &ClientCredentials{
		Client: s.Client(), TokenURL: s.URL, ClientID: "broker", SecretFile: path, Scopes: []string{"a", "b"}, Resource: "https://mcp.example/mcp", Now: c.Now,
	}
	for text, want := range map[string]time.Duration{
		`{"access_token":"tok-0123456789","token_type":"Bearer","expires_in":3600,"more":{}}`: time.Hour,
		`{"access_token":"tok-0123456789","token_type":"bearer","expires_in":"60"}`:           time.Minute,
		`{"access_token":"tok-0123456789","token_type":"bearer"}`:                             0,
	} {
		answer.Store(&text)
		status.Store(200)
		tok, err := src.Fetch(t.Context())
		if err != nil || tok.Value != "tok-0123456789" || want != 0 && tok.Expires.Sub(c.Now()) != want || want == 0 && !tok.Expires.IsZero() {
			t.Errorf("%s: %+v %v", text, tok, err)
		}
	}
	for text, code := range map[string]int32{
		`{"error":"invalid_client","error_description":"` + clientSecret + `"}`:                  401,
		`{"access_token":"tok-0123456789","token_type":"bearer","expires_in":60} `:               500,
		`{"access_token":"tok-0123456789","token_type":"mac"}`:                                   200,
		`{"access_token":"tok-0123456789"}`:                                                      200,
		`{"Access_Token":"tok-0123456789","token_type":"bearer"}`:                                200,
		`{"access_token":"tok-0123456789","token_type":"bearer","expires_in":-1}`:                200,
		`{"access_token":"tok-0123456789","token_type":"bearer","expires_in":1e300}`:             200,
		`{"access_token":"` + strings.Repeat("x", maxTokenResponse) + `","token_type":"bearer"}`: 200,
		`tok-0123456789`: 200,
		`null`:           200,
	} {
		answer.Store(&text)
		status.Store(code)
		if tok, err := src.Fetch(t.Context()); err == nil || strings.Contains(err.Error(), "0123456789") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%.60s: %+v %v", text, tok, err)
		}
	}
	src.SecretFile = filepath.Join(t.TempDir(), "none")
	if _, err := src.Fetch(t.Context()); err == nil {
		t.Error("a token without a secret")
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add([]byte(`{"access_token":"tok-0123456789","token_type":"bearer","expires_in":60}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		now := time.Unix(1000, 0)
		if tok, err := parseToken(raw, now); err == nil && !tok.Expires.IsZero() && tok.Expires.Before(now) {
			t.Errorf("%q expires at %v", raw, tok.Expires)
		}
	})
}
