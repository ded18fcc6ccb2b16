package persubject

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/services/toolbroker/internal/credential"
)

// pass lets time pass in a bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the time of a synctest bubble
}

// conversation is a session that knows with whose token it was made.
type conversation struct {
	token  string
	done   chan struct{}
	once   sync.Once
	closed atomic.Bool
}

func (c *conversation) Done() <-chan struct{} { return c.done }

func (c *conversation) Close() error {
	c.closed.Store(true)
	c.once.Do(func() { close(c.done) })
	return nil
}

// world is a server of which all that is known is who speaks to it.
type world struct {
	pool *Pool[*conversation]
	// fetched and made count tokens and sessions.
	fetched, made atomic.Int32
	fail          atomic.Bool
	stop          func()
}

type subjectKey struct{}

// as is the context of a call for a subject: its token tells whose it is.
func as(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, subjectKey{}, id)
}

func (w *world) Keep() time.Duration { return time.Hour }

func (w *world) Fetch(ctx context.Context) (credential.Token, error) {
	w.fetched.Add(1)
	pass(time.Millisecond)
	id, _ := ctx.Value(subjectKey{}).(string)
	return credential.Token{Value: "token-of-" + id}, nil
}

func (w *world) connect(ctx context.Context, k *credential.Keeper) (*conversation, error) {
	w.made.Add(1)
	pass(time.Millisecond)
	if w.fail.Load() {
		return nil, errors.New("it is down")
	}
	t, err := k.Token(ctx)
	return &conversation{token: t.Value, done: make(chan struct{})}, err
}

// newWorld runs a pool in the bubble of a test; stop ends it.
func newWorld(t *testing.T, subjects, sessions int) *world {
	t.Helper()
	w := &world{}
	w.pool = New(Config[*conversation]{Source: w, Connect: w.connect, Now: time.Now, MaxSubjects: subjects, MaxSessions: sessions, Idle: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.pool.Run(ctx) })
	w.stop = func() { cancel(); running.Wait() }
	return w
}

func (w *world) take(t *testing.T, id string) Held[*conversation] {
	t.Helper()
	h, err := w.pool.Take(as(t.Context(), id), Subject{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Whatever comes at once, each subject has one session, of its own, with its own
// token.
func TestASessionIsOfOneSubject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 0)
		defer w.stop()
		var all sync.WaitGroup
		for n := range 400 {
			all.Go(func() {
				id := fmt.Sprint("user-", n%8)
				h := w.take(t, id)
				defer h.Release()
				if h.Session.token != "token-of-"+id {
					t.Errorf("%s was given the session of %s", id, h.Session.token)
				}
			})
		}
		all.Wait()
		if w.made.Load() != 8 || w.fetched.Load() != 8 {
			t.Errorf("%d sessions and %d tokens of 8 subjects", w.made.Load(), w.fetched.Load())
		}
	})
}

// One name in two organizations is two subjects.
func TestAnOrganizationIsAPartOfTheSubject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 0)
		defer w.stop()
		a, err := w.pool.Take(as(t.Context(), "a"), Subject{"org-a", "user-1"})
		if err != nil {
			t.Fatal(err)
		}
		b, err := w.pool.Take(as(t.Context(), "b"), Subject{"org-b", "user-1"})
		if err != nil || a.Session == b.Session || b.Session.token != "token-of-b" {
			t.Errorf("%v: one session for both", err)
		}
		a.Release()
		b.Release()
	})
}

func TestIdleSessionsAreClosedAndTokensKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 0)
		defer w.stop()
		used, idle := w.take(t, "used"), w.take(t, "idle")
		idle.Release()
		pass(2 * time.Minute)
		synctest.Wait()
		if !idle.Session.closed.Load() || used.Session.closed.Load() {
			t.Errorf("idle closed %v, used closed %v", idle.Session.closed.Load(), used.Session.closed.Load())
		}
		used.Release()
		again := w.take(t, "idle")
		defer again.Release()
		if again.Session == idle.Session || w.fetched.Load() != 2 {
			t.Errorf("a closed session came back, or %d tokens", w.fetched.Load())
		}
		pass(Forget + time.Minute)
		if got := w.pool.String(); got != "1 subjects, 1 sessions" { // the one in use
			t.Errorf("after %v: %s", Forget, got)
		}
	})
}

func TestSessionsAndSubjectsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 2)
		defer w.stop()
		a, b := w.take(t, "a"), w.take(t, "b")
		if _, err := w.pool.Take(as(t.Context(), "c"), Subject{ID: "c"}); !errors.Is(err, ErrBusy) {
			t.Errorf("a third session beside two in use: %v", err)
		}
		a.Release()
		c := w.take(t, "c")
		synctest.Wait()
		if !a.Session.closed.Load() || b.Session.closed.Load() {
			t.Error("another one gave way than the one that nobody uses")
		}
		c.Release()
		b.Release()
		pass(time.Second)
		for _, id := range []string{"d", "e", "f", "g"} {
			w.take(t, id).Release()
			pass(time.Second)
			if got := w.pool.String(); !strings.HasPrefix(got, "3 subjects") {
				t.Errorf("after %s: %s", id, got)
			}
		}
		before := w.fetched.Load()
		w.take(t, "g").Release()
		if w.fetched.Load() != before {
			t.Error("the token of the last one was forgotten")
		}
	})
}

// A session that the server ended is made anew, and a failed one holds no room.
func TestASessionThatIsOverIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 1)
		defer w.stop()
		h := w.take(t, "a")
		h.Session.once.Do(func() { close(h.Session.done) })
		h.Release()
		again := w.take(t, "a")
		again.Release()
		synctest.Wait()
		if again.Session == h.Session || !h.Session.closed.Load() {
			t.Error("a session that is over was given out, or not closed")
		}
		w.fail.Store(true)
		for range 5 {
			if _, err := w.pool.Take(as(t.Context(), "b"), Subject{ID: "b"}); err == nil || errors.Is(err, ErrBusy) {
				t.Fatalf("while the server is down: %v", err)
			}
		}
		w.fail.Store(false)
		w.take(t, "b").Release()
	})
}

func TestNothingIsLeftAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 0)
		h := w.take(t, "a")
		late := make(chan error, 1)
		go func() {
			_, err := w.pool.Take(as(t.Context(), "late"), Subject{ID: "late"}) // it connects while the pool is closed
			late <- err
		}()
		synctest.Wait()
		w.stop()
		if err := <-late; err == nil {
			t.Error("a session was made after the end")
		}
		if _, err := w.pool.Take(as(t.Context(), "a"), Subject{ID: "a"}); err == nil || !h.Session.closed.Load() {
			t.Errorf("after the end: %v, closed %v", err, h.Session.closed.Load())
		}
		h.Release()
		if got := w.pool.String(); got != "0 subjects, 0 sessions" {
			t.Error(got)
		}
	})
}

// A caller that goes away while another connects waits no longer.
func TestTakeEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 0)
		defer w.stop()
		first := make(chan Held[*conversation])
		go func() { first <- w.take(t, "a") }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(as(t.Context(), "a"), time.Microsecond)
		defer cancel()
		if _, err := w.pool.Take(ctx, Subject{ID: "a"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		(<-first).Release()
	})
}
