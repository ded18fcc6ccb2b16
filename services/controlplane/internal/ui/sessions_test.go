package ui

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/authn"
)

// clock and its links: a code is "id seconds".
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// OneTime implements Links.
func (c *clock) OneTime(_ context.Context, code string) (authn.Caller, string, time.Time, error) {
	var id string
	var seconds int
	if _, err := fmt.Sscanf(code, "%s %d", &id, &seconds); err != nil {
		return authn.Caller{}, "", time.Time{}, fault.New(fault.Unauthenticated, "test")
	}
	return authn.Caller{Subject: "operator", Organization: "o"}, strings.TrimPrefix(id, "-"), c.at.Add(time.Duration(seconds) * time.Second), nil
}

// Request implements Tokens.
func (*clock) Request(*http.Request) (authn.Caller, error) {
	return authn.Caller{Subject: "of a token"}, nil
}

func sessions(t *testing.T) (*Sessions, *clock) {
	t.Helper()
	c := &clock{time.Unix(1700000000, 0)}
	return NewSessions(c, c, c.now), c
}

func ask(t *testing.T, s *Sessions, headers ...string) (authn.Caller, error) {
	t.Helper()
	return s.Request(with(t, headers...))
}

func with(t *testing.T, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://local/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header["Authorization"] = headers
	return r
}

func open(t *testing.T, s *Sessions, code string) string {
	t.Helper()
	o, err := s.Open(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	return o.Token
}

func refused(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Errorf("%v, want %s", err, code)
	}
}

// A link opens one session, and that ends by itself, or when it is asked to.
func TestALinkWorksOnce(t *testing.T) {
	s, c := sessions(t)
	token := open(t, s, "a 60")
	for range 2 {
		_, err := s.Open(t.Context(), "a 60")
		refused(t, err, fault.Unauthenticated)
	}
	if caller, err := ask(t, s, "Bearer "+token); err != nil || caller.Subject != "operator" {
		t.Errorf("%+v, %v", caller, err)
	}
	for _, headers := range [][]string{{"Bearer ui_other"}, {"Bearer ui_"}} {
		_, err := ask(t, s, headers...)
		refused(t, err, fault.Unauthenticated)
	}
	// Whatever is no session is for the API's own verifier to judge.
	for _, headers := range [][]string{nil, {"Bearer x"}, {"Bearer " + token, "Bearer " + token}, {token}} {
		if caller, err := ask(t, s, headers...); err != nil || caller.Subject != "of a token" {
			t.Errorf("%v: %+v, %v", headers, caller, err)
		}
	}
	second := open(t, s, "b 60")
	s.Close(with(t, "Bearer "+second))
	s.Close(with(t, "Bearer x"))
	_, err := ask(t, s, "Bearer "+second)
	refused(t, err, fault.Unauthenticated)
	c.at = c.at.Add(SessionTTL)
	_, err = ask(t, s, "Bearer "+token)
	refused(t, err, fault.Unauthenticated)
}

// A code that is good for long could not be remembered for as long, and one without
// an id not at all.
func TestCodesThatAreNone(t *testing.T) {
	s, _ := sessions(t)
	for _, code := range []string{"", "- 60", "a 901", "a"} {
		_, err := s.Open(t.Context(), code)
		refused(t, err, fault.Unauthenticated)
	}
	open(t, s, "a 900")
}

// However many links are opened, what is kept is bounded, and no code works again
// before it has expired.
func TestSessionsAreBounded(t *testing.T) {
	s, c := sessions(t)
	first := open(t, s, "c0 600")
	for i := 1; i < maxUsed; i++ {
		c.at = c.at.Add(time.Millisecond)
		open(t, s, fmt.Sprintf("c%d 600", i))
	}
	if len(s.open) != maxSessions || len(s.used) != maxUsed {
		t.Errorf("%d sessions, %d codes", len(s.open), len(s.used))
	}
	_, err := ask(t, s, "Bearer "+first)
	refused(t, err, fault.Unauthenticated)
	_, err = s.Open(t.Context(), "more 600")
	refused(t, err, fault.Capacity)
	_, err = s.Open(t.Context(), "c1 600")
	refused(t, err, fault.Unauthenticated)
	c.at = c.at.Add(time.Hour)
	open(t, s, "more 600")
	if len(s.used) != 1 {
		t.Errorf("%d codes are remembered", len(s.used))
	}
}
