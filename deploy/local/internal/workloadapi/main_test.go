package workloadapi

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	spiffe "github.com/spiffe/go-spiffe/v2/workloadapi"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

var (
	td      = spiffeid.RequireTrustDomainFromString("cofferdam.test")
	broker  = spiffeid.RequireFromPath(td, "/svc/toolbroker")
	sandbox = spiffeid.RequireFromPath(td, "/sandbox/i-1")
)

// clock is moved by hand. It begins at the time of day, because go-spiffe reads that, and at a whole second, so that
// nothing is rounded.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now().Truncate(time.Second)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}

// newServer starts a server that rotates only when a test calls rotate.
func newServer(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	cfg := Config{TrustDomain: td, Dir: t.TempDir()}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func register(t *testing.T, s *Server, id spiffeid.ID) string {
	t.Helper()
	path, err := s.Register(id)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func rotate(t *testing.T, s *Server, now time.Time) {
	t.Helper()
	if err := s.rotate(now); err != nil {
		t.Fatal(err)
	}
}

// dial returns a go-spiffe client of a socket.
func dial(t *testing.T, path string) *spiffe.Client {
	t.Helper()
	c, err := spiffe.New(t.Context(), spiffe.WithAddr("unix://"+path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// source returns a go-spiffe source of a socket.
func source(t *testing.T, path string) *spiffe.X509Source {
	t.Helper()
	src, err := spiffe.NewX509Source(bounded(t), spiffe.WithClientOptions(spiffe.WithAddr("unix://"+path)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	return src
}

// bounded returns a context that ends with the test, or before if something hangs.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
