package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/waittest"
)

var errSecret = errors.New("mongodb://user:hunter2@db is away")

func TestOnlyThoseOnTheListGetIn(t *testing.T) {
	s := host(t, time.Second, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	if got, err := s.get(t.Context(), t, "client"); err != nil || got != "hello" {
		t.Errorf("the one on the list: %q, %v", got, err)
	}
	if got, err := s.get(t.Context(), t, "other"); err == nil {
		t.Errorf("another one: %q", got)
	}
}

// All addresses of a service are the service, with the same list, and they end
// together.
func TestSeveralAddresses(t *testing.T) {
	s := host(t, time.Second, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	second := *s
	second.main = s.second
	at := map[string]hosted{"first": *s, "second": second}
	for name, a := range at {
		if got, err := a.get(t.Context(), t, "client"); err != nil || got != "hello" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if got, err := a.get(t.Context(), t, "other"); err == nil {
			t.Errorf("%s: somebody else got %q", name, got)
		}
	}
	s.stop()
	if err := s.end(t); err != nil {
		t.Errorf("serve: %v", err)
	}
	for name, a := range at {
		if got, err := a.get(context.WithoutCancel(t.Context()), t, "client"); err == nil {
			t.Errorf("%s, after the end: %q", name, got)
		}
	}
}

// One that cannot be had is no reason to keep the others.
func TestAllAddressesOrNone(t *testing.T) {
	first := "unix://" + t.TempDir() + "/first.sock"
	if _, err := listenAll(t.Context(), []string{first, "unix:///nonexistent/second.sock"}); err == nil {
		t.Fatal("listens")
	}
	l, err := Listen(t.Context(), first)
	must(t, err)
	must(t, l.Close())
}

func TestReadiness(t *testing.T) {
	var mu sync.Mutex
	var away error
	s := host(t, time.Second, http.NotFound,
		func(context.Context) error { return nil },
		func(context.Context) error { mu.Lock(); defer mu.Unlock(); return away })
	if got := s.probe(t, "/readyz"); got != "200 ready" {
		t.Errorf("ready: %q", got)
	}
	mu.Lock()
	away = errSecret
	mu.Unlock()
	// A probe is told which check; why is for the log alone.
	if got := s.probe(t, "/readyz"); got != "503 check-1: not ready" {
		t.Errorf("not ready: %q", got)
	}
	if !strings.Contains(s.log.String(), "db is away") {
		t.Error("the log does not say why")
	}
	if got := s.probe(t, "/healthz"); got != "200 ok" {
		t.Errorf("a service that is not ready is healthy all the same: %q", got)
	}
	if got := s.probe(t, "/metrics"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("metrics: %q", got)
	}
	for _, path := range []string{"/", "/debug/pprof/", "/readyz/x"} {
		if got := s.probe(t, path); !strings.HasPrefix(got, "404 ") {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// A check that hangs makes a service unready, and no probe hang.
func TestACheckThatHangs(t *testing.T) {
	s := host(t, time.Second, http.NotFound, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	if got := s.probe(t, "/readyz"); got != "503 check-0: not ready" {
		t.Errorf("%q", got)
	}
}

// When it is told to end, a service says so, takes nothing new, and lets open
// requests end.
func TestDrain(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	s := host(t, patience, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		select {
		case <-finish:
			_, _ = w.Write([]byte("finished"))
		case <-r.Context().Done():
			_, _ = w.Write([]byte("cut"))
		}
	})
	answer := make(chan string, 1)
	go func() {
		got, err := s.get(context.WithoutCancel(t.Context()), t, "client")
		answer <- fmt.Sprint(got, err)
	}()
	<-begun
	s.stop()
	waittest.Until(t, "it says that it drains", func() bool { return s.probe(t, "/readyz") == "503 draining" })
	if got := s.probe(t, "/healthz"); got != "200 ok" {
		t.Errorf("health while it drains: %q", got)
	}
	waittest.Until(t, "nothing new is taken", func() bool {
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", s.main)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	select {
	case err := <-s.ended:
		t.Fatalf("it ended with a request open: %v", err)
	default:
	}
	close(finish)
	if got := <-answer; got != "finished<nil>" {
		t.Errorf("the open request got %q", got)
	}
	if err := s.end(t); err != nil {
		t.Errorf("serve: %v", err)
	}
	if got := s.probe(t, "/healthz"); got != "" {
		t.Errorf("after the end: %q", got)
	}
}

// Streams that go on are cancelled when the drain time is over. One that nobody
// told would be cut by the hard stop each time, and not only on a busy machine.
func TestStreamsAreCancelledAfterTheDrain(t *testing.T) {
	const drain = 100 * time.Millisecond
	var took time.Duration
	for range 5 {
		if took = cancelledAfter(t, drain); took < drain+hardStop {
			break
		}
	}
	if took < drain || took >= drain+hardStop {
		t.Errorf("the stream was cancelled after %v", took)
	}
}

// cancelledAfter is how long after the stop of a server a stream ends that goes on.
func cancelledAfter(t *testing.T, drain time.Duration) time.Duration {
	t.Helper()
	begun, told := make(chan struct{}), make(chan struct{})
	s := host(t, drain, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-r.Context().Done()
		close(told)
	})
	go func() { _, _ = s.get(context.WithoutCancel(t.Context()), t, "client") }()
	<-begun
	select {
	case <-told:
		t.Fatal("the stream was cancelled before anybody asked")
	default:
	}
	began := time.Now()
	s.stop()
	<-told
	took := time.Since(began)
	if err := s.end(t); err != nil {
		t.Errorf("serve: %v", err)
	}
	return took
}

// A handler that does not notice is left behind: its connection is closed.
func TestTheHardStop(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	var handler sync.WaitGroup
	handler.Add(1)
	s := host(t, 10*time.Millisecond, func(http.ResponseWriter, *http.Request) {
		defer handler.Done()
		close(begun)
		<-release
	})
	failed := make(chan error, 1)
	go func() { _, err := s.get(context.WithoutCancel(t.Context()), t, "client"); failed <- err }()
	<-begun
	began := time.Now()
	s.stop()
	if err := s.end(t); err != nil {
		t.Errorf("serve: %v", err)
	}
	if took := time.Since(began); took < hardStop || took > hardStop+patience/2 {
		t.Errorf("took %v", took)
	}
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
	close(release)
	handler.Wait()
}

// A listener that breaks ends the service, with the reason.
func TestAListenerThatBreaks(t *testing.T) {
	l := &broken{Listener: httptest.NewUnstartedServer(nil).Listener, err: errSecret}
	err := ServeListener(t.Context(), HTTPServer(http.NotFoundHandler(), host(t, time.Second, http.NotFound).rt.Logger), l, time.Second)
	if !errors.Is(err, errSecret) {
		t.Errorf("serve: %v", err)
	}
}

type broken struct {
	net.Listener
	err error
}

func (b *broken) Accept() (net.Conn, error) { return nil, b.err }

func TestServeRefusesAListenerThatCannotBeHad(t *testing.T) {
	s := host(t, time.Second, http.NotFound)
	base := *s.rt.base // its sockets are served
	for _, b := range []Base{
		base,
		{Listen: "127.0.0.1:0", AdminListen: base.AdminListen, DrainTimeout: time.Second},
	} {
		rt := *s.rt
		rt.base = &b
		if err := rt.Serve(t.Context(), http.NotFoundHandler(), nil); err == nil {
			t.Errorf("served at %+v", b)
		}
	}
}

// Without an admin listener there are no admin routes, and an end all the same.
func TestWithoutAdminRoutes(t *testing.T) {
	s := host(t, time.Second, http.NotFound)
	rt := *s.rt
	rt.base = &Base{Listen: "127.0.0.1:0", DrainTimeout: time.Second}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rt.Serve(ctx, http.NotFoundHandler(), nil); err != nil {
		t.Errorf("serve: %v", err)
	}
}
