package loopback_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/services/worker/internal/loopback"
)

const chat = "/v1/chat/completions"

func TestTheDoor(t *testing.T) {
	s := newStand(t)
	s.begin(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(s.at.ModelBaseURL, "http://"), ":")
	many := make([]string, 0, 2*loopback.MaxHeaders+2)
	for i := range loopback.MaxHeaders + 1 {
		many = append(many, fmt.Sprintf("X-%d", i), "x")
	}
	secret := s.at.ModelKey
	for name, tc := range map[string]struct {
		path   string
		header []string
		want   int
	}{
		"as it should be":    {chat, nil, 200},
		"localhost":          {chat, []string{"Host", "localhost:" + port}, 200},
		"x-api-key":          {chat, []string{"Authorization", "", "X-Api-Key", secret}, 200},
		"x-goog-api-key":     {chat, []string{"Authorization", "", "X-Goog-Api-Key", secret}, 200},
		"in the path":        {"/" + secret + chat, []string{"Authorization", ""}, 200},
		"no secret":          {chat, []string{"Authorization", ""}, 401},
		"another secret":     {chat, []string{"Authorization", "Bearer " + strings.Repeat("A", len(secret))}, 401},
		"another, in a path": {"/AAAA" + chat, []string{"Authorization", ""}, 401},
		"an empty path":      {"/" + chat, []string{"Authorization", ""}, 401},
		"another host":       {chat, []string{"Host", "attacker.example:" + port}, 403},
		"no port":            {chat, []string{"Host", "127.0.0.1"}, 403},
		"another origin":     {chat, []string{"Origin", "https://attacker.example"}, 403},
		"no origin at all":   {chat, []string{"Origin", "null"}, 403},
		"own origin":         {chat, []string{"Origin", s.at.ModelBaseURL}, 200},
		"too many headers":   {chat, many, 431},
		"too large headers":  {chat, []string{"X-A", strings.Repeat("x", 64<<10)}, 431},
		"mcp, another host":  {"/mcp", []string{"Host", "attacker.example"}, 403},
		"mcp, no secret":     {"/mcp", []string{"Authorization", ""}, 401},
		"another route":      {"/v1/embeddings", nil, 404},
		"above it":           {"/v1/chat/completions/../files", nil, 404},
		"encoded":            {"/v1/chat%2fcompletions", nil, 404},
		"another method":     {"/v1beta/models/m:deleteAll", nil, 404},
		"two models":         {"/v1beta/models/a/b:generateContent", nil, 404},
	} {
		t.Run(name, func(t *testing.T) {
			if a := s.post(t, tc.path, "{}", tc.header...); a.status != tc.want || a.err != nil && tc.want == 200 {
				t.Errorf("status %d, %v: %s", a.status, a.err, a.body)
			}
		})
	}
}

// Authority belongs to a run: before and after it both endpoints refuse, with an
// error that says so.
func TestOutsideARun(t *testing.T) {
	s := newStand(t)
	refused := func(when string) {
		t.Helper()
		for _, path := range []string{chat, "/mcp", "/v1/messages"} {
			a := s.post(t, path, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
			if a.status != http.StatusForbidden || !strings.Contains(a.body, `"code":"no_run"`) {
				t.Errorf("%s, %s: status %d: %s", when, path, a.status, a.body)
			}
		}
	}
	refused("before")
	run, _ := s.begin(t)
	if a := s.post(t, chat, "{}"); a.status != 200 {
		t.Fatalf("within: %d", a.status)
	}
	if _, err := s.Begin(t.Context(), loopback.RunConfig{}); err == nil {
		t.Error("two runs at once")
	}
	run.Close()
	run.Close()
	refused("after")
	if s.proxy.count() != 1 {
		t.Error("something went further")
	}
}

func TestTheSecretIsThatOfOneProgram(t *testing.T) {
	s := newStand(t)
	s.begin(t)
	before := s.at.ModelKey
	s.at = s.Renew()
	if a := s.post(t, chat, "{}", "Authorization", "Bearer "+before); a.status != 401 {
		t.Errorf("the secret of the program before: %d", a.status)
	}
	if a := s.post(t, chat, "{}"); a.status != 200 {
		t.Errorf("the new one: %d", a.status)
	}
}

func TestTooManyAtOnce(t *testing.T) {
	s := newStand(t)
	run, _ := s.begin(t, func(c *loopback.RunConfig) { c.Limits.ModelCalls = 1000 })
	entered := make(chan struct{}, loopback.MaxModelCalls+1)
	s.proxy.says(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
	})
	for range loopback.MaxModelCalls {
		go s.post(t, chat, "{}")
	}
	for range loopback.MaxModelCalls {
		<-entered
	}
	if a := s.post(t, chat, "{}"); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d", a.status)
	}
	run.Close() // ends them all
}
