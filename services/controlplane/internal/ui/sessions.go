package ui

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/authn"
)

// AudienceSuffix after that of the API's tokens is the audience of the codes of links.
const AudienceSuffix = "-ui-link"

// Bounds of sessions.
const (
	// SessionTTL is how long a session lasts.
	SessionTTL = 12 * time.Hour
	// maxSessions at once; who opens another one ends the oldest.
	maxSessions = 64
	// maxLinkTTL is how long the code of a link may be good for at most.
	maxLinkTTL = 15 * time.Minute
	// maxUsed codes are remembered until they would have expired anyway.
	maxUsed = 1024

	scheme = "ui_"
)

// Links verifies the codes of links; *authn.Verifier does, with an audience of its
// own, so that a code is no token of the API.
type Links interface {
	OneTime(ctx context.Context, code string) (c authn.Caller, id string, until time.Time, err error)
}

// Tokens verifies the bearer token of a request; *authn.Verifier does.
type Tokens interface {
	Request(r *http.Request) (authn.Caller, error)
}

// Sessions are those that links have opened, in this process: they end with it.
type Sessions struct {
	links  Links
	tokens Tokens
	now    func() time.Time

	mu   sync.Mutex
	open map[[sha256.Size]byte]session // by the digest of their tokens
	used map[string]time.Time          // ids of codes, until when they would have been good
}

type session struct {
	caller authn.Caller
	until  time.Time
}

// Opened is a session that was just opened.
type Opened struct {
	// Token goes into Authorization, as Bearer.
	Token  string
	Caller authn.Caller
	Until  time.Time
}

// NewSessions makes Sessions. tokens are taken beside them.
func NewSessions(links Links, tokens Tokens, now func() time.Time) *Sessions {
	return &Sessions{links: links, tokens: tokens, now: now, open: map[[sha256.Size]byte]session{}, used: map[string]time.Time{}}
}

// Open takes the code of a link, once, and gives the token of a session. Errors:
// unauthenticated, capacity where more links were used than can be remembered.
func (s *Sessions) Open(ctx context.Context, code string) (Opened, error) {
	const op = "ui.Open"
	caller, id, good, err := s.links.OneTime(ctx, code)
	if err != nil {
		return Opened{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for other, g := range s.used {
		if !now.Before(g) {
			delete(s.used, other)
		}
	}
	_, again := s.used[id]
	switch {
	case id == "", good.Sub(now) > maxLinkTTL:
		return Opened{}, fault.New(fault.Unauthenticated, op, fault.Detail("code: not one of a link"))
	case again:
		return Opened{}, fault.New(fault.Unauthenticated, op, fault.Detail("code: a link works once; get another one"))
	case len(s.used) >= maxUsed:
		return Opened{}, fault.New(fault.Capacity, op, fault.RetryAfter(time.Minute))
	}
	s.used[id] = good
	s.makeRoom(now)
	o := Opened{scheme + rand.Text(), caller, now.Add(SessionTTL)}
	s.open[sha256.Sum256([]byte(o.Token))] = session{caller, o.Until}
	return o, nil
}

// makeRoom ends what is over, and the oldest where there are too many.
func (s *Sessions) makeRoom(now time.Time) {
	for len(s.open) > 0 {
		var oldest [sha256.Size]byte
		first := time.Time{}
		for d, o := range s.open {
			if first.IsZero() || o.until.Before(first) {
				oldest, first = d, o.until
			}
		}
		if now.Before(first) && len(s.open) < maxSessions {
			return
		}
		delete(s.open, oldest)
	}
}

// Request gives whom a request speaks for: a session, or a bearer token of the API's.
// Errors: unauthenticated, dependency_unavailable.
func (s *Sessions) Request(r *http.Request) (authn.Caller, error) {
	token, ok := sessionToken(r)
	if !ok {
		return s.tokens.Request(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.open[sha256.Sum256([]byte(token))]
	if !ok || !s.now().Before(o.until) {
		return authn.Caller{}, fault.New(fault.Unauthenticated, "ui.Request", fault.Detail("session: over; sign in again"))
	}
	return o.caller, nil
}

// Close ends the session of a request; another token is none of its concern.
func (s *Sessions) Close(r *http.Request) {
	if token, ok := sessionToken(r); ok {
		s.End(token)
	}
}

// End ends the session of a token, if there is one.
func (s *Sessions) End(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sha256.Sum256([]byte(token)))
}

func sessionToken(r *http.Request) (string, bool) {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 {
		return "", false
	}
	token, ok := strings.CutPrefix(headers[0], "Bearer ")
	return token, ok && strings.HasPrefix(token, scheme)
}
