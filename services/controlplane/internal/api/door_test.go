package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"cofferdam.dev/pkg/fault"
)

type route struct{ method, path, body string }

func public() []route {
	return []route{
		{http.MethodPost, "/api/v1/runs", goodStart},
		{http.MethodGet, "/api/v1/runs/run_x", ""},
		{http.MethodGet, "/api/v1/runs/run_x/events", ""},
		{http.MethodGet, "/api/v1/runs/run_x/stream", ""},
		{http.MethodPost, "/api/v1/runs/run_x:cancel", ""},
		{http.MethodPost, "/api/v1/runs/run_x:resume", goodResume},
		{http.MethodGet, "/api/v1/conversations/c1/interrupt-state?agent_id=demo", ""},
		{http.MethodPost, "/api/v1/agents/demo/agui", goodAGUI},
		{http.MethodPost, clearRoute, `{"agent_id":"demo"}`},
		{http.MethodGet, "/api/v1/harnesses", ""},
		{http.MethodGet, "/api/v1/agents", ""},
		{http.MethodGet, "/api/v1/agents/demo", ""},
		{http.MethodPut, "/api/v1/agents/demo", goodAgent},
		{http.MethodPost, chatStart, goodChat},
		{http.MethodPost, chatResume, goodChatResume},
		{http.MethodPost, chatCancel, goodChatCancel},
		{http.MethodPost, chatInvoke, goodChat},
		{http.MethodPost, "/api/v1/files?agent_id=demo&conversation_id=c1", "{}"},
		{http.MethodGet, "/api/v1/files/f1", ""},
		{http.MethodGet, "/", ""},
		{http.MethodDelete, "/api/v1/runs", ""},
	}
}

func operators() []route {
	return []route{{http.MethodGet, "/api/v1/bindings", ""}, {http.MethodGet, "/api/v1/bindings/hs_x", ""}, {http.MethodGet, "/x", ""}, {http.MethodPut, "/api/v1/agents/demo", goodAgent}}
}

// Nobody gets past the door without a good token, on no route.
func TestEveryRouteAsksForAToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	claims := func(change func(*jwt.Claims)) string {
		c := jwt.Claims{
			Issuer: issuer, Audience: jwt.Audience{audience}, Subject: "user-1", Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
		}
		change(&c)
		return "Bearer " + f.sign(t, c)
	}
	headers := map[string][]string{
		"none":           nil,
		"empty":          {""},
		"another kind":   {"Basic dXNlcjpwYXNz"},
		"no token":       {"Bearer "},
		"no JWT":         {"Bearer abc"},
		"two headers":    {"Bearer " + f.token(t, "user-1"), "Bearer " + f.token(t, "user-1")},
		"expired":        {claims(func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(time.Now().Add(-time.Second)) })},
		"another issuer": {claims(func(c *jwt.Claims) { c.Issuer = "https://other.test" })},
		"unsigned":       {"Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1c2VyLTEifQ."},
	}
	check := func(base string, r route) {
		for name, values := range headers {
			req := f.requestTo(t, base, "user-1", r.method, r.path, r.body)
			req.Header["Authorization"] = values
			a := f.send(t, req)
			refused(t, a, http.StatusUnauthorized, fault.Unauthenticated, "")
			if !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer") || t.Failed() {
				t.Fatalf("%s %s with %s: %d %v", r.method, r.path, name, a.status, a.header)
			}
		}
	}
	for _, r := range public() {
		check(f.public, r)
	}
	for _, r := range operators() {
		check(f.operators, r)
	}
	if n := f.stack.Provider.Made(); n != 0 {
		t.Errorf("%d sandboxes were made", n)
	}
}

func TestUnknownRoutes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for _, r := range []route{
		{http.MethodGet, "/", ""},
		{http.MethodGet, "/api/v1", ""},
		{http.MethodGet, "/api/v1/runs", ""},
		{http.MethodDelete, "/api/v1/runs/run_x", ""},
		{http.MethodPost, "/api/v1/runs/run_x", "{}"},
		{http.MethodPost, "/api/v1/runs/run_x:explode", "{}"},
		{http.MethodPut, "/api/v1/agents/demo/agui", "{}"},
		{http.MethodGet, "/api/v1/bindings", ""},
		{http.MethodGet, "/metrics", ""},
	} {
		refused(t, f.send(t, f.request(t, r.method, r.path, r.body)), http.StatusNotFound, fault.NotFound, "path: ")
	}
	refused(t, f.send(t, f.requestTo(t, f.operators, "operator-1", http.MethodPost, "/api/v1/runs", goodStart)), http.StatusNotFound, fault.NotFound, "path: ")
}

// Another caller's run looks like none, on every route.
func TestAnotherCallersRunIsNotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	id := f.start(t, "hi")
	f.ended(t, id)
	for _, r := range []route{
		{http.MethodGet, "", ""},
		{http.MethodGet, "/events", ""},
		{http.MethodGet, "/stream", ""},
		{http.MethodGet, "/stream?protocol=agui", ""},
		{http.MethodPost, ":cancel", ""},
	} {
		theirs := f.send(t, f.requestTo(t, f.public, "user-2", r.method, "/api/v1/runs/"+id+r.path, r.body))
		nobodys := f.send(t, f.request(t, r.method, "/api/v1/runs/run_nobody"+r.path, r.body))
		refused(t, theirs, http.StatusNotFound, fault.NotFound, "")
		a, b := theirs.fault(t), nobodys.fault(t)
		if a.IncidentID, b.IncidentID = "", ""; a != b || theirs.status != nobodys.status {
			t.Errorf("%s %s: %+v differs from %+v", r.method, r.path, a, b)
		}
		refused(t, f.send(t, f.request(t, r.method, "/api/v1/runs/no%20id"+r.path, r.body)), http.StatusNotFound, fault.NotFound, "")
	}
}

// Who may not use an agent begins nothing with it.
func TestAuthorizationComesFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for _, r := range []route{{http.MethodPost, "/api/v1/runs", goodStart}, {http.MethodPost, "/api/v1/agents/demo/agui", goodAGUI}} {
		refused(t, f.send(t, f.requestTo(t, f.public, "user-3", r.method, r.path, r.body)), http.StatusForbidden, fault.AccessDenied, "")
	}
	f.grants.allow("user-1", "can_invoke", "agent:nobody")
	refused(t, f.post(t, "/api/v1/runs", strings.Replace(goodStart, "demo", "nobody", 1)), http.StatusNotFound, fault.NotFound, "agent_id: ")
	refused(t, f.post(t, "/api/v1/agents/nobody/agui", goodAGUI), http.StatusNotFound, fault.NotFound, "agent_id: ")
	if n := f.stack.Provider.Made(); n != 0 {
		t.Errorf("%d sandboxes were made", n)
	}
}
