package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/fault"
)

// pages asks the operators' address for something of the page, which is not in the
// document of the API.
func (f *fixture) page(t *testing.T, method, path, body, token string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, f.operators+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, raw}
}

// code is that of a link.
func (f *fixture) code(t *testing.T, subject, aud string) string {
	t.Helper()
	raw, err := json.Marshal(map[string]string{"code": f.sign(t, jwt.Claims{
		Issuer: issuer, Audience: jwt.Audience{aud}, Subject: subject, ID: "id of " + subject,
		IssuedAt: jwt.NewNumericDate(time.Now()), Expiry: jwt.NewNumericDate(time.Now().Add(10 * time.Minute)),
	})})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The page is served to whoever reaches the operators' address, with a policy that
// lets nothing but its own files run; callers have none.
func TestThePageIsServed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for path, kind := range map[string]string{"/ui": "text/html", "/ui/": "text/html", "/ui/app.js": "text/javascript", "/ui/app.css": "text/css"} {
		a := f.page(t, http.MethodGet, path, "", "")
		policy := a.header.Get("Content-Security-Policy")
		if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), kind) || len(a.body) == 0 {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") ||
			a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, a.header)
		}
	}
	for _, path := range []string{"/ui/index.html", "/ui/../server.go", "/ui/static/app.js", "/ui/nothing"} {
		refused(t, f.page(t, http.MethodGet, path, "", ""), http.StatusUnauthorized, fault.Unauthenticated, "")
	}
	refused(t, f.get(t, "/ui/"), http.StatusNotFound, fault.NotFound, "")
}

// What makes markup of text, or script of strings, is in none of the page's files.
func TestThePageHasNoSinks(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for _, path := range []string{"/ui/", "/ui/app.js"} {
		text := string(f.page(t, http.MethodGet, path, "", "").body)
		for _, sink := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc", "javascript:", " style=", " onclick=", "<script>", "<style"} {
			if strings.Contains(text, sink) {
				t.Errorf("%s has %s", path, sink)
			}
		}
	}
}

// A link signs an operator in, once; its code is no token, and a token is no code.
func TestASessionOfThePage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.grants.allow("operator-1", authz.CanInvoke, authz.AgentID("demo"))
	code := f.code(t, "operator-1", audience+"-ui-link")
	var session struct {
		Token     string
		ExpiresAt time.Time `json:"expires_at"`
	}
	if a := f.page(t, http.MethodPost, "/ui/session", code, ""); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	} else if a.json(t, &session); session.Token == "" || !session.ExpiresAt.After(time.Now()) {
		t.Fatalf("%s", a.body)
	}
	refused(t, f.page(t, http.MethodPost, "/ui/session", code, ""), http.StatusUnauthorized, fault.Unauthenticated, "code: ")
	refused(t, f.page(t, http.MethodPost, "/ui/session", f.code(t, "operator-1", audience), ""), http.StatusUnauthorized, fault.Unauthenticated, "token: another audience")
	var doc map[string]string
	if err := json.Unmarshal([]byte(code), &doc); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/ui/api/v1/agents", "/api/v1/bindings"} {
		refused(t, f.page(t, http.MethodGet, path, "", doc["code"]), http.StatusUnauthorized, fault.Unauthenticated, "")
	}
	for _, path := range []string{"/ui/api/v1/agents", "/ui/api/v1/bindings", "/ui/api/v1/agents/demo"} {
		for name, token := range map[string]string{"the session": session.Token, "a token": f.token(t, "operator-1")} {
			if a := f.page(t, http.MethodGet, path, "", token); a.status != http.StatusOK {
				t.Errorf("%s with %s: %d %s", path, name, a.status, a.body)
			}
		}
		refused(t, f.page(t, http.MethodGet, path, "", f.token(t, "user-1")), http.StatusForbidden, fault.AccessDenied, "")
		refused(t, f.page(t, http.MethodGet, path, "", ""), http.StatusUnauthorized, fault.Unauthenticated, "")
	}
	// A session is for the page alone.
	refused(t, f.page(t, http.MethodGet, "/api/v1/bindings", "", session.Token), http.StatusUnauthorized, fault.Unauthenticated, "")
	if a := f.page(t, http.MethodPost, "/ui/api/v1/agents/demo/agui", goodAGUI, session.Token); a.status != http.StatusOK || kinds(frames(t, a.body))[0] != "RUN_STARTED" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := f.page(t, http.MethodDelete, "/ui/session", "", session.Token); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	refused(t, f.page(t, http.MethodGet, "/ui/api/v1/agents", "", session.Token), http.StatusUnauthorized, fault.Unauthenticated, "session: ")
}

// Who is no operator gets no session, and another caller's run is shown to nobody else.
func TestWhoMaySeeThePage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	refused(t, f.page(t, http.MethodPost, "/ui/session", f.code(t, "user-1", audience+"-ui-link"), ""), http.StatusForbidden, fault.AccessDenied, "")
	id := f.start(t, "hi")
	f.ended(t, id)
	token := f.token(t, "operator-1")
	refused(t, f.page(t, http.MethodGet, "/ui/api/v1/runs/"+id+"/stream", "", token), http.StatusNotFound, fault.NotFound, "")
	refused(t, f.page(t, http.MethodPost, "/ui/api/v1/agents/demo/agui", goodAGUI, token), http.StatusForbidden, fault.AccessDenied, "")
}
