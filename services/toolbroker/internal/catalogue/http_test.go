package catalogue_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/toolbroker/internal/call"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/hostile"
)

// over is a hostile server over HTTP with tools.
func over(t *testing.T, namespace string, h *hostile.HTTP, tools ...string) catalogue.Server {
	t.Helper()
	return catalogue.Server{
		Namespace: namespace, Transport: catalogue.TransportHTTP, URL: h.Serve(t), Tools: tools,
		Egress: &catalogue.Egress{AllowCIDRs: []string{"127.0.0.0/8"}},
	}
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func both() map[string]*hostile.HTTP {
	return map[string]*hostile.HTTP{"2025-06-18": {}, "2026-07-28": {Stateless: true}}
}

func TestToolsOverHTTP(t *testing.T) {
	t.Parallel()
	for revision, h := range both() {
		c, log := run(t, over(t, "h", h, "echo", "fail", "no_such_tool"))
		found, missing := c.List([]string{"h.*"})
		if ids(found) != "h.echo h.fail" || codes(missing) != "h.no_such_tool=tool_unavailable" {
			t.Errorf("%s: found %s, missing %s", revision, ids(found), codes(missing))
		}
		if r, err := invoke(t, tool(t, c, "h.echo")); err != nil || r.IsError {
			t.Errorf("%s: %s %v", revision, r.JSON, err)
		}
		if !strings.Contains(log.String(), `"protocol":"`+revision+`"`) {
			t.Errorf("%s was not negotiated: %s", revision, log)
		}
	}
}

// A server that may not be connected to is one that is away.
func TestAServerOutsideOfItsEgress(t *testing.T) {
	t.Parallel()
	h := &hostile.HTTP{}
	s := over(t, "h", h, "echo")
	s.Egress = &catalogue.Egress{AllowCIDRs: []string{"10.0.0.0/8"}}
	c, log := run(t, s)
	if found, _ := c.List([]string{"h.*"}); len(found) != 0 || h.Requests("POST initialize") != 0 {
		t.Errorf("found %s", ids(found))
	}
	if !strings.Contains(log.String(), "is not allowed: loopback") {
		t.Errorf("nobody is told why: %s", log)
	}
}

// A session that expired is made anew, and what was called in it is not called
// again (agentgateway 3622).
func TestAnExpiredSessionIsMadeAnew(t *testing.T) {
	t.Parallel()
	h := &hostile.HTTP{}
	h.SetTools(hostile.HTTPList())
	c, _ := run(t, over(t, "h", h, "expire", "count"))
	for range 3 {
		if _, err := invoke(t, tool(t, c, "h.expire")); err == nil || errors.Is(err, call.ErrNotSent) {
			t.Fatalf("the call in which it expired: %v", err)
		}
		wait(t, func() bool {
			_, err := invoke(t, tool(t, c, "h.count"))
			if err != nil && !errors.Is(err, call.ErrNotSent) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	if got := strings.Join(h.Effects(), " "); got != "expire count expire count expire count" {
		t.Errorf("effects: %s", got)
	}
}

// A tool that changed is checked by its new schema, whether the server says so or
// its list has become old.
func TestAToolThatChanged(t *testing.T) {
	t.Parallel()
	const list = `{"tools":[{"name":"echo","inputSchema":{"type":"object","required":["KEY"]}},{"name":"count","inputSchema":{"type":"object"}}]}`
	for revision, h := range both() {
		for _, silent := range []bool{false, true} {
			h.SetTools(strings.ReplaceAll(list, "KEY", "old"))
			if silent {
				h.TTL = 250
			}
			c, _ := run(t, over(t, "h", h, "echo", "count"))
			echo := tool(t, c, "h.echo")
			if err := echo.Check(map[string]any{"old": ""}); err != nil {
				t.Fatal(revision, err)
			}
			if silent {
				h.SetToolsQuietly(strings.ReplaceAll(list, "KEY", "new"))
			} else {
				wait(t, func() bool { return h.Listening() == 1 })
				h.SetTools(strings.ReplaceAll(list, "KEY", "new"))
			}
			wait(t, func() bool { return echo.Check(map[string]any{"new": ""}) == nil })
			if err := echo.Check(map[string]any{"old": ""}); err == nil {
				t.Errorf("%s: arguments of before are taken", revision)
			}
			// Arguments that were checked before it changed are not sent.
			if _, err := echo.Call(t.Context(), call.Behalf{}, json.RawMessage(`{"old":""}`), time.Time{}, nil); !errors.Is(err, call.ErrNotSent) {
				t.Errorf("%s: sent: %v", revision, err)
			}
			h.SetToolsQuietly(`{"tools":[{"name":"count","inputSchema":{"type":"object"}},{"name":"echo","inputSchema":{"type":"objekt"}}]}`)
			h.Announce()
			wait(t, func() bool { found, _ := c.List([]string{"h.*"}); return ids(found) == "h.count" })
			h.SetToolsQuietly(strings.ReplaceAll(list, "KEY", "new"))
			h.Announce()
			wait(t, func() bool { found, _ := c.List([]string{"h.*"}); return len(found) == 2 })
		}
	}
}

// A server that breaks takes itself out and comes back by itself.
func TestAServerThatBreaksComesBack(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{hostile.ModeRefuse, hostile.ModeHeaders, hostile.ModeEndless} {
		bad, good := &hostile.HTTP{Stateless: true, TTL: 200}, &hostile.HTTP{}
		c, log := run(t, over(t, "bad", bad, "echo"), over(t, "good", good, "echo"))
		bad.SetMode(mode)
		wait(t, func() bool { found, _ := c.List([]string{"bad.*"}); return len(found) == 0 })
		if r, err := invoke(t, tool(t, c, "good.echo")); err != nil || r.IsError {
			t.Errorf("%s: the other server: %s %v", mode, r.JSON, err)
		}
		bad.SetMode("")
		wait(t, func() bool { r, err := invoke(t, tool(t, c, "bad.echo")); return err == nil && !r.IsError })
		if !strings.Contains(log.String(), `"code":"`+string(fault.ToolUnavailable)+`"`) {
			t.Errorf("%s: nobody is told", mode)
		}
	}
}

// A credential is read anew when the server does not take the old one, and is cut
// out of everything that the server says.
func TestACredentialOverHTTP(t *testing.T) {
	t.Parallel()
	const first, second = "tok-first-0123456789", "tok-second-0123456789"
	path := filepath.Join(t.TempDir(), "token")
	write := func(secret string) {
		if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(first)
	h := &hostile.HTTP{Token: first}
	h.SetTools(hostile.HTTPList())
	s := over(t, "h", h, "token", "rpc_error", "count")
	s.Credential = &catalogue.Credential{Source: catalogue.SourceFile, Path: path}
	c, log := run(t, s)
	shown := func() string {
		var all []string
		for _, name := range []string{"h.token", "h.rpc_error"} {
			r, err := invoke(t, tool(t, c, name))
			all = append(all, string(r.JSON))
			if err != nil {
				all = append(all, err.Error())
			}
		}
		return strings.Join(all, "\n")
	}
	if got := shown(); strings.Count(got, "[redacted]") != 2 || strings.Contains(got, "0123456789") {
		t.Errorf("it is shown: %s", got)
	}
	h.SetToken(second)
	write(second)
	_, err := invoke(t, tool(t, c, "h.count")) // refused with the old one: that is an answer
	if err != nil {
		t.Errorf("with an old token: %v", err)
	}
	wait(t, func() bool { r, err := invoke(t, tool(t, c, "h.count")); return err == nil && !r.IsError })
	if got := shown(); strings.Count(got, "[redacted]") != 2 || strings.Contains(got, "0123456789") {
		t.Errorf("it is shown: %s", got)
	}
	if strings.Contains(log.String(), "0123456789") {
		t.Errorf("it is in the log: %s", log)
	}
	if got := h.Effects(); !slices.Equal(got, []string{"count"}) {
		t.Errorf("effects: %v", got)
	}
}

// A token for one server comes from its token endpoint, once for many calls, and
// goes nowhere else.
func TestAnOAuthCredential(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	tokens := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if _, secret, ok := r.BasicAuth(); !ok || secret != "client-secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token":"oauth-token-0123456789","token_type":"Bearer","expires_in":3600}`))
	}))
	t.Cleanup(tokens.Close)
	dir := t.TempDir()
	secret, ca := filepath.Join(dir, "secret"), filepath.Join(dir, "ca.pem")
	if err := errors.Join(os.WriteFile(secret, []byte("client-secret"), 0o600), os.WriteFile(ca, pemOf(tokens.Certificate()), 0o600)); err != nil {
		t.Fatal(err)
	}
	h, other := &hostile.HTTP{Token: "oauth-token-0123456789"}, &hostile.HTTP{} //nolint:gosec // of this test alone
	h.SetTools(hostile.HTTPList())
	other.SetTools(hostile.HTTPList())
	s := over(t, "h", h, "token", "count")
	s.Egress.CAFile = ca
	s.Credential = &catalogue.Credential{
		Source: catalogue.SourceClientCredentials, TokenURL: tokens.URL, ClientID: "broker", ClientSecretFile: secret,
	}
	c, log := run(t, s, over(t, "o", other, "token"))
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if r, err := invoke(t, tool(t, c, "h.token")); err != nil || !strings.Contains(string(r.JSON), "sent with Bearer [redacted]") {
				t.Errorf("%s %v\n%s", r.JSON, err, log)
			}
		})
	}
	all.Wait()
	if r, err := invoke(t, tool(t, c, "o.token")); err != nil || !strings.Contains(string(r.JSON), `"sent with "`) {
		t.Errorf("another server gets %s %v", r.JSON, err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("%d tokens were fetched", n)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	h := &hostile.HTTP{}
	h.SetTools(hostile.HTTPList())
	s := over(t, "h", h, "hang", "echo", "huge")
	s.Limits = &catalogue.Limits{Concurrency: 1}
	s.MaxResultBytes = 2048
	slow := over(t, "s", h, "echo")
	slow.Limits = &catalogue.Limits{PerSecond: 0.001, Burst: 2}
	c, _ := run(t, s, slow)
	const soon, late = 100 * time.Millisecond, time.Minute
	within := func(d time.Duration, id string) error {
		_, err := tool(t, c, id).Call(t.Context(), call.Behalf{}, json.RawMessage(`{}`), time.Now().Add(d), nil)
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	hanging := make(chan error, 1)
	go func() {
		_, err := tool(t, c, "h.hang").Call(ctx, call.Behalf{}, json.RawMessage(`{}`), time.Time{}, nil)
		hanging <- err
	}()
	wait(t, func() bool { return len(h.Effects()) == 1 })
	if err := within(soon, "h.echo"); !errors.Is(err, call.ErrBusy) || !errors.Is(err, call.ErrNotSent) {
		t.Errorf("beside a call that hangs: %v", err)
	}
	cancel()
	if err := <-hanging; err == nil {
		t.Error("a call that hangs was answered")
	}
	if err := within(late, "h.echo"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	for i, by := range []time.Duration{late, late, soon} {
		if err := within(by, "s.echo"); errors.Is(err, call.ErrBusy) != (by == soon) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	r, err := tool(t, c, "h.echo").Call(t.Context(), call.Behalf{}, json.RawMessage(`{"a":"`+strings.Repeat("x", 10_000)+`"}`), time.Time{}, nil)
	if err != nil || !r.Truncated || len(r.JSON) > 2048 {
		t.Errorf("%d bytes, truncated %v, %v", len(r.JSON), r.Truncated, err)
	}
}
