package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/api"
	"cofferdam.dev/services/controlplane/internal/ratelimit"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// limits has a clock that stands, so that nothing comes back by itself.
func limits(change func(*ratelimit.Config)) func(*api.Config) {
	c := ratelimit.Config{RequestsPerSecond: 0.5, RequestBurst: 1000, StartsPerSecond: 0.25, StartBurst: 1000, Open: 1000, Subjects: 1000, Now: moment}
	change(&c)
	return func(cfg *api.Config) { cfg.Limits = ratelimit.New(c) }
}

func tooMany(t *testing.T, a answer, seconds string) {
	t.Helper()
	refused(t, a, http.StatusTooManyRequests, fault.RateLimited, "")
	e := a.fault(t)
	if a.header.Get("Retry-After") != seconds || !e.Retryable || e.RetryAfterSeconds == nil {
		t.Errorf("%v %+v", a.header, e)
	}
}

// A subject that asks too often is told when to ask again, whatever it asks for; other
// subjects are not concerned, and who has no token uses nothing up.
func TestRequestsAreLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{change: limits(func(c *ratelimit.Config) { c.RequestBurst = 2 })})
	anonymous := f.request(t, http.MethodGet, "/api/v1/agents", "")
	anonymous.Header.Del("Authorization")
	for range 4 {
		refused(t, f.send(t, anonymous), http.StatusUnauthorized, fault.Unauthenticated, "")
	}
	f.get(t, "/api/v1/agents")
	refused(t, f.get(t, "/api/v1/nothing"), http.StatusNotFound, fault.NotFound, "")
	for _, path := range []string{"/api/v1/agents", "/api/v1/runs/run_x", "/api/v1/nothing"} {
		tooMany(t, f.get(t, path), "2")
	}
	tooMany(t, f.put(t, f.operators, "user-1", "demo", goodAgent), "2")
	if a := f.send(t, f.requestTo(t, f.public, "user-2", http.MethodGet, "/api/v1/agents", "")); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Whatever starts a run counts, before its body is looked at; reading goes on.
func TestStartsAreLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{change: limits(func(c *ratelimit.Config) { c.StartBurst = 1 })})
	id := f.start(t, "hi")
	for path, body := range map[string]string{
		"/api/v1/runs": goodStart, agui: goodAGUI, chatStart: goodChat, chatResume: goodChatResume, chatInvoke: "{", "/api/v1/runs/" + id + ":resume": goodResume,
	} {
		tooMany(t, f.post(t, path, body), "4")
	}
	f.ended(t, id)
	if a := f.send(t, f.requestTo(t, f.public, "user-2", http.MethodPost, "/api/v1/runs", goodStart)); a.status != http.StatusAccepted {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A stream is an open request until its client has gone.
func TestOpenRequestsAreLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{
		script: func(**runstest.Stack) runstest.Script { return waits },
		change: func(c *api.Config) {
			c.IdleComment = 10 * time.Millisecond
			limits(func(l *ratelimit.Config) { l.Open, l.RequestBurst = 2, 100000 })(c)
		},
	})
	id := f.start(t, "hi")
	first, second := f.reader(t, id, ""), f.reader(t, id, "?protocol=agui")
	tooMany(t, f.get(t, "/api/v1/agents"), "1")
	first()
	waittest.Until(t, "its place is free", func() bool { return f.get(t, "/api/v1/agents").status == http.StatusOK })
	second()
	waittest.Until(t, "the run is cancelled", func() bool {
		a := f.post(t, chatCancel, goodChatCancel)
		return a.status == http.StatusOK && strings.Contains(string(a.body), `"confirmed":true`)
	})
}
