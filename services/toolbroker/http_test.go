package toolbroker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/toolbroker/internal/audit"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/hostile"
)

// web is a session with a hostile server over HTTP as namespace h.
func web(t *testing.T, h *hostile.HTTP, change ...func(*catalogue.Server)) *session {
	t.Helper()
	h.SetTools(hostile.HTTPList())
	tools := append([]string{"count", "echo", "crash", "crash_early", "garbage", "hang", "fail", "rpc_error", "bytes", "surrogate"}, hostile.HTTPTools...)
	server := catalogue.Server{
		Namespace: "h", Transport: catalogue.TransportHTTP, URL: h.Serve(t), Tools: tools, Timeout: "60s",
		Egress: &catalogue.Egress{AllowCIDRs: []string{"127.0.0.1/32"}},
	}
	for _, c := range change {
		c(&server)
	}
	s := newSession(t, server)
	for _, name := range tools {
		s.grants.allow(t, subject, authz.ToolID("h."+name))
	}
	return s
}

// Whatever a server over HTTP does with a call, its effect happens once for a key
// at most, and a call whose answer did not come is unknown for good.
func TestAHostileHTTPServerGetsEachCallOnce(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		t.Run(fmt.Sprintf("stateless %v", stateless), func(t *testing.T) {
			t.Parallel()
			eachCallOnce(t, stateless)
		})
	}
}

func eachCallOnce(t *testing.T, stateless bool) {
	t.Helper()
	h := &hostile.HTTP{Stateless: stateless}
	tools := []string{
		"crash", "cut", "garbage", "giant", "giant_event", "flood", "drip", "hang", "redirect", "headers", "unavailable", "empty", "other_id", "expire",
	}
	s := web(t, h, func(c *catalogue.Server) { // some of them never answer
		c.ToolOptions = map[string]catalogue.ToolOptions{}
		for _, tool := range tools {
			c.ToolOptions[tool] = catalogue.ToolOptions{Timeout: "2s"}
		}
	})
	for _, tool := range tools {
		if tool == "expire" && stateless {
			continue
		}
		e := s.stand.Envelope()
		before := len(h.Effects())
		for range 2 { // the second time out of the ledger
			_, err := s.callAs(t.Context(), e, "h."+tool, `{}`)
			wantCode(t, err, fault.ToolOutcomeUnknown)
		}
		wait(t, func() bool { _, err := s.call(t, "h.echo", `{}`); return err == nil })
		_, err := s.callAs(t.Context(), e, "h."+tool, `{}`)
		wantCode(t, err, fault.ToolOutcomeUnknown)
		done := slices.DeleteFunc(h.Effects()[before:], func(line string) bool { return line == "cancelled" })
		if !slices.Equal(done, []string{tool}) {
			t.Errorf("%s: effects %v", tool, done)
		}
	}
	for range 20 {
		_, err := s.call(t, "h.count", `{}`)
		must(t, err)
	}
	counted := 0
	for _, line := range h.Effects() {
		if line == "count" {
			counted++
		}
	}
	if counted != 20 {
		t.Errorf("%d effects of 20 keys", counted)
	}
}

func TestOddResultsOverHTTP(t *testing.T) {
	h := &hostile.HTTP{}
	s := web(t, h)
	for tool, want := range map[string]string{
		"bytes":     "a\ufffdb\ufffd\ufffd\ufffdc",
		"surrogate": "a\ufffdb\ufffdc",
		"stream":    "streamed",
		"ask_twice": "asked",
		"fail":      "no such thing",
		"forbidden": "The tool's server answered with an error (-32099): the request was refused: HTTP 403",
	} {
		if got := textOf(s.call(t, "h."+tool, `{}`)); got != want {
			t.Errorf("%s: %q, want %q", tool, got, want)
		}
	}
}

func TestTheCredentialOfAnHTTPServerIsNowhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte(canary), 0o600))
	h := &hostile.HTTP{Token: canary}
	s := web(t, h, func(c *catalogue.Server) {
		c.Credential = &catalogue.Credential{Source: catalogue.SourceFile, Path: path}
	})
	for _, tool := range []string{"h.token", "h.rpc_error", "h.echo"} {
		res, err := s.call(t, tool, `{}`)
		must(t, err)
		if strings.Contains(string(res.GetResult()), canary) || tool != "h.echo" && !strings.Contains(string(res.GetResult()), "[redacted]") {
			t.Errorf("%s: %s", tool, res.GetResult())
		}
	}
	if h.Refused() || strings.Contains(s.log.String(), canary) {
		t.Errorf("refused %v, or it is in the log", h.Refused())
	}
}

// The built-in tool is off by default and stands behind the same policy.
func TestHTTPFetch(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte("the word is heron"))
	}))
	t.Cleanup(page.Close)
	s := newSession(t)
	_, err := s.call(t, "builtin.http_fetch", `{"url":"`+page.URL+`"}`)
	wantCode(t, err, fault.ToolUnavailable)

	allowed := catalogue.HTTPFetch{
		Hosts: []string{"127.0.0.1"}, Ports: []uint16{portOf(t, page.URL)}, Egress: &catalogue.Egress{AllowCIDRs: []string{"127.0.0.1/32"}},
	}
	s = newSessionWith(t, func(c *catalogue.Config) { c.Builtin = &catalogue.Builtin{HTTPFetch: &allowed} })
	_, err = s.call(t, "builtin.http_fetch", `{"url":"`+page.URL+`"}`)
	wantCode(t, err, fault.ToolDenied)
	s.grants.allow(t, subject, authz.ToolID("builtin.http_fetch"))
	if got := textOf(s.call(t, "builtin.http_fetch", `{"url":"`+page.URL+`"}`)); got != "the word is heron" {
		t.Error(got)
	}
	_, err = s.call(t, "builtin.http_fetch", `{"url":"`+page.URL+`","method":"POST"}`)
	wantCode(t, err, fault.ToolArgumentsInvalid)
	if got := textOf(s.call(t, "builtin.http_fetch", `{"url":"http://169.254.169.254/"}`)); !strings.Contains(got, "not allowed") {
		t.Error(got)
	}
}

func portOf(t *testing.T, s string) uint16 {
	t.Helper()
	u, err := url.Parse(s)
	must(t, err)
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	must(t, err)
	return uint16(n)
}

func audited(t *testing.T, path string) []audit.Record {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	var out []audit.Record
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		var r audit.Record
		must(t, json.Unmarshal(s.Bytes(), &r))
		out = append(out, r)
	}
	return out
}

// Each decision and each outcome has its record, and none of them a word of what
// was said.
func TestAudit(t *testing.T) {
	h := &hostile.HTTP{}
	s := web(t, h)
	const secret = "what-the-user-wrote-71b2"
	e := s.stand.Envelope()
	for range 2 {
		_, err := s.callAs(t.Context(), e, "h.echo", `{"a":"`+secret+`"}`)
		must(t, err)
	}
	_, err := s.call(t, "h.fail", `{}`)
	must(t, err)
	_, err = s.call(t, "h.crash", `{}`)
	wantCode(t, err, fault.ToolOutcomeUnknown)
	_, err = s.call(t, "x.typed", `{"path":5}`)
	wantCode(t, err, fault.ToolArgumentsInvalid)
	s.grants.forbid(t, subject, authz.ToolID("x.echo"))
	_, err = s.call(t, "x.echo", `{}`)
	wantCode(t, err, fault.ToolDenied)
	s.allowed = []string{"x.echo"}
	_, err = s.call(t, "x.count", `{}`)
	wantCode(t, err, fault.ToolNotAllowed)

	var got []string
	for _, r := range audited(t, s.audit) {
		got = append(got, strings.Join([]string{r.Kind, r.ToolID, r.Decision, r.Reason, r.Outcome, r.SideEffects}, " "))
		if !strings.HasPrefix(r.Subject, "hmac-sha256:") || r.BindingID == "" || r.RunID == "" || r.Call == "" || r.Time.IsZero() || r.DurationMS < 0 {
			t.Errorf("%+v", r)
		}
		if r.Decision == audit.Allowed && (!strings.HasPrefix(r.Arguments, "sha256:") || r.Risk != catalogue.RiskMedium) {
			t.Errorf("%+v", r)
		}
	}
	want := []string{
		"decision h.echo allowed   ", "outcome h.echo allowed  ok known",
		"decision h.echo allowed   ", "outcome h.echo allowed  replayed known",
		"decision h.fail allowed   ", "outcome h.fail allowed  tool_error known",
		"decision h.crash allowed   ", "outcome h.crash allowed tool_outcome_unknown unknown possible",
		"decision x.typed refused tool_arguments_invalid  ",
		"decision x.echo refused tool_denied  ",
		"decision x.count refused tool_not_allowed  ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	raw, err := os.ReadFile(s.audit)
	must(t, err)
	if strings.Contains(string(raw), secret) || strings.Contains(string(raw), "user-1") {
		t.Error("what the user wrote, or who it was, is in the audit")
	}
}

// A call that cannot be audited is not made, and nothing of it is written.
func TestWithoutAuditNothingIsCalled(t *testing.T) {
	s := newSession(t)
	_, err := s.call(t, "x.count", `{}`)
	must(t, err)
	rows := len(s.stand.Rows(t))
	must(t, os.RemoveAll(filepath.Dir(s.audit)))
	for range 3 {
		_, err = s.call(t, "x.count", `{}`)
		wantCode(t, err, fault.DependencyUnavailable)
	}
	if got := s.count(t); len(got) != 1 || len(s.stand.Rows(t)) != rows {
		t.Errorf("effects: %v, rows %d", got, len(s.stand.Rows(t)))
	}
	must(t, os.Mkdir(filepath.Dir(s.audit), 0o700))
	_, err = s.call(t, "x.count", `{}`)
	must(t, err)
	if got := audited(t, s.audit); len(got) != 2 || got[0].Kind != audit.KindDecision {
		t.Errorf("afterwards: %+v", got)
	}
}

// A broker that is called more often than the operator wants says so.
func TestABusyServer(t *testing.T) {
	h := &hostile.HTTP{}
	s := web(t, h, func(c *catalogue.Server) { c.Limits = &catalogue.Limits{PerSecond: 0.001} })
	_, err := s.call(t, "h.count", `{}`)
	must(t, err)
	begin := time.Now()
	_, err = s.call(t, "h.count", `{}`)
	wantCode(t, err, fault.RateLimited)
	if f := fault.From(err, ""); f.SideEffects() != "none" || time.Since(begin) > 10*time.Second {
		t.Errorf("%v after %v", f.Safe(), time.Since(begin))
	}
	if got := h.Effects(); !slices.Equal(got, []string{"count"}) {
		t.Errorf("effects: %v", got)
	}
}
