package toolbroker

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/rpc/rpctest"
)

// Two subjects at once are called with a token each, in a session each, and none
// is ever the other's.
func TestEachSubjectHasATokenAndASessionOfItsOwn(t *testing.T) {
	t.Parallel()
	x := newExchanging(t)
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			as, want := x.stand, "you are user-1 with [redacted]"
			if n%2 == 1 {
				as, want = x.other, "you are user-2 with [redacted]"
			}
			if got, err := x.ask(t, as); err != nil || got != want {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		})
	}
	all.Wait()
	begun, calls, crossed := x.server.seen()
	n, wrong, _ := x.endpoint.exchanges()
	if begun != 3 || calls != 40 || len(crossed) > 0 { // one more to list the tools in
		t.Errorf("%d sessions, %d calls, crossed: %v", begun, calls, crossed)
	}
	if n != 2 || len(wrong) > 0 {
		t.Errorf("%d exchanges for two subjects, wrong: %v", n, wrong)
	}
	x.nothingLeaked(t)
}

// What is shown to the token endpoint is what the capability service said, and
// never what the worker came with.
func TestTheWorkersCapabilityIsNeverShownToATokenEndpoint(t *testing.T) {
	t.Parallel()
	x := newExchanging(t)
	_, err := x.ask(t, x.stand)
	must(t, err)
	if _, wrong, _ := x.endpoint.exchanges(); len(wrong) > 0 || len(x.voucher.given()) != 1 {
		t.Errorf("wrong: %v, %d assertions", wrong, len(x.voucher.given()))
	}
	x.voucher.mu.Lock()
	x.voucher.listed = "https://elsewhere.example/token"
	x.voucher.mu.Unlock()
	_, err = x.ask(t, x.other)
	wantCode(t, err, fault.ToolUnavailable)
	if n, _, _ := x.endpoint.exchanges(); n != 1 {
		t.Errorf("%d exchanges", n)
	}
	if f := fault.From(err, ""); f.SideEffects() != "none" {
		t.Errorf("side effects %q of a call that was not made", f.SideEffects())
	}
}

// A token that was taken back is asked for anew; a subject that gets none is not
// called for, least of all with what another one has.
func TestASubjectWhoseTokenIsRevoked(t *testing.T) {
	t.Parallel()
	x := newExchanging(t)
	for _, as := range []*rpctest.Stand{x.stand, x.other} {
		_, err := x.ask(t, as)
		must(t, err)
	}
	x.endpoint.revoke("user-1", true)
	got, err := x.ask(t, x.stand) // the server says 401
	if err != nil || strings.Contains(got, "you are") {
		t.Errorf("%q, %v", got, err)
	}
	for range 3 {
		_, err = x.ask(t, x.stand)
		wantCode(t, err, fault.ToolUnavailable)
	}
	if got, err := x.ask(t, x.other); err != nil || got != "you are user-2 with [redacted]" {
		t.Errorf("the other one: %q, %v", got, err)
	}
	x.endpoint.revoke("user-1", false)
	wait(t, func() bool { // a failure stands for a second
		got, err := x.ask(t, x.stand)
		return err == nil && got == "you are user-1 with [redacted]"
	})
	if _, _, crossed := x.server.seen(); len(crossed) > 0 {
		t.Errorf("crossed: %v", crossed)
	}
	x.nothingLeaked(t)
}

// However a token endpoint misbehaves, the call is not made, nothing of what was
// sent there goes anywhere else, and it works again when the endpoint does.
func TestATokenEndpointThatMisbehaves(t *testing.T) {
	t.Parallel()
	x := newExchanging(t)
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(text))
		}
	}
	const kind = `"issued_token_type":"urn:ietf:params:oauth:token-type:access_token"`
	for name, serve := range map[string]http.HandlerFunc{
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"refuses":                func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"is huge":                answer(`{"access_token":"` + strings.Repeat("x", 1<<20) + `",` + kind + `,"token_type":"Bearer"}`),
		"gives a refresh token":  answer(`{"access_token":"canary-0123456","issued_token_type":"urn:ietf:params:oauth:token-type:refresh_token","token_type":"Bearer"}`),
		"gives no kind of token": answer(`{"access_token":"canary-0123456","token_type":"Bearer"}`),
		"gives no bearer token":  answer(`{"access_token":"canary-0123456",` + kind + `,"token_type":"N_A"}`),
		"breaks off":             func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		x.endpoint.behave(serve)
		_, err := x.ask(t, x.stand)
		if fault.CodeOf(err) != fault.ToolUnavailable || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	x.endpoint.behave(nil)
	wait(t, func() bool { _, err := x.ask(t, x.stand); return err == nil })
	if _, calls, _ := x.server.seen(); calls != 1 || elsewhere.Load() > 0 {
		t.Errorf("%d calls, %d requests elsewhere", calls, elsewhere.Load())
	}
	x.nothingLeaked(t)
}

// A token endpoint may take longer than a call has to begin: it is asked before.
// One that never answers holds a call up for a bounded time, and other tools not.
func TestASlowTokenEndpoint(t *testing.T) {
	t.Parallel()
	x := newExchanging(t)
	x.endpoint.behave(func(w http.ResponseWriter, r *http.Request) {
		<-time.After(2500 * time.Millisecond) // more than write 4 allows
		x.endpoint.behave(nil)
		x.endpoint.ServeHTTP(w, r)
	})
	if got, err := x.ask(t, x.stand); err != nil || got != "you are user-1 with [redacted]" {
		t.Errorf("%q, %v", got, err)
	}
	x.endpoint.behave(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then a server sees that its client has gone
		<-r.Context().Done()
	})
	asked := make(chan error, 1)
	go func() { _, err := x.ask(t, x.other); asked <- err }()
	if got, err := x.ask(t, x.stand); err != nil || got != "you are user-1 with [redacted]" {
		t.Errorf("beside a subject that waits: %q, %v", got, err)
	}
	wantCode(t, <-asked, fault.ToolUnavailable)
	if _, calls, _ := x.server.seen(); calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

// A token is used until shortly before it expires, and not beyond.
func TestAnExpiredTokenOfASubjectIsNotUsed(t *testing.T) {
	t.Parallel()
	x := newExchanging(t)
	x.endpoint.life = 2
	n := 0
	var wrong []string
	wait(t, func() bool {
		_, _ = x.ask(t, x.stand) // on a slow machine a token may come expired
		n, wrong, _ = x.endpoint.exchanges()
		return n >= 2
	})
	if len(wrong) > 0 {
		t.Errorf("%d exchanges, wrong: %v", n, wrong)
	}
}
