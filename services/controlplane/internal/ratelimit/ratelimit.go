// Package ratelimit keeps one subject from using up what is there for all: how
// often it may ask, how often it may start a run, and how many of its requests may
// be open at once.
package ratelimit

import (
	"container/list"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"cofferdam.dev/pkg/fault"
)

// openAgain is how long to wait for another request to end. Nobody knows when one
// does; it keeps those who ask from asking all the time.
const openAgain = time.Second

// maxRate bounds what an operator can set, per second or at once.
const maxRate = 1_000_000

// Config of a Limiter, for each subject.
type Config struct {
	// RequestsPerSecond that a subject may make in the long run, and RequestBurst how
	// many at once after a pause.
	RequestsPerSecond float64
	RequestBurst      int
	// StartsPerSecond and StartBurst are the same for requests that start a run, which
	// count as requests too.
	StartsPerSecond float64
	StartBurst      int
	// Open is how many requests, streams among them, may be open at once.
	Open int
	// Subjects is for how many subjects it is kept how much they have used; of more,
	// who has asked for nothing for the longest time is forgotten.
	Subjects int
	// Now is time.Now outside of tests.
	Now func() time.Time
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	for _, v := range []struct {
		name  string
		value float64
	}{
		{"requests per second", c.RequestsPerSecond},
		{"starts per second", c.StartsPerSecond},
		{"request burst", float64(c.RequestBurst)},
		{"start burst", float64(c.StartBurst)},
		{"open requests", float64(c.Open)},
		{"subjects", float64(c.Subjects)},
	} {
		if !(v.value > 0 && v.value <= maxRate) { // also what is no number
			errs = append(errs, errors.New(v.name+": more than 0, at most 1000000"))
		}
	}
	return errors.Join(errs...)
}

// Limiter limits subjects. It is safe for concurrent use.
type Limiter struct {
	cfg Config

	mu sync.Mutex
	by map[string]*list.Element
	// order has the subjects, who asked last in front.
	order list.List
}

type subject struct {
	name             string
	requests, starts *rate.Limiter
	open             int
}

// New makes a Limiter of a valid Config.
func New(c Config) *Limiter {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Limiter{cfg: c, by: map[string]*list.Element{}}
}

// Enter lets a request of a subject in, or says when to ask again: rate_limited. leave
// is called when the request has been answered, also in full by a stream.
func (l *Limiter) Enter(name string) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.subject(name)
	if s.open >= l.cfg.Open {
		return nil, limited("open requests: too many at once", openAgain)
	}
	if wait := take(s.requests, l.cfg.Now()); wait > 0 {
		return nil, limited("requests: too many in a second", wait)
	}
	s.open++
	var once sync.Once
	return func() {
		once.Do(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			s.open--
		})
	}, nil
}

// Start lets a request that has been let in start a run, or says when to ask again:
// rate_limited.
func (l *Limiter) Start(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait := take(l.subject(name).starts, l.cfg.Now()); wait > 0 {
		return limited("starts of runs: too many in a second", wait)
	}
	return nil
}

// Subjects is how many are known.
func (l *Limiter) Subjects() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.by)
}

// subject finds or makes a subject. One that has requests open is never forgotten:
// there are no more of those than connections.
func (l *Limiter) subject(name string) *subject {
	if e := l.by[name]; e != nil {
		l.order.MoveToFront(e)
		return of(e)
	}
	for e := l.order.Back(); e != nil && len(l.by) >= l.cfg.Subjects; {
		before := e.Prev()
		if s := of(e); s.open == 0 {
			delete(l.by, s.name)
			l.order.Remove(e)
		}
		e = before
	}
	s := &subject{
		name:     name,
		requests: rate.NewLimiter(rate.Limit(l.cfg.RequestsPerSecond), l.cfg.RequestBurst),
		starts:   rate.NewLimiter(rate.Limit(l.cfg.StartsPerSecond), l.cfg.StartBurst),
	}
	l.by[name] = l.order.PushFront(s)
	return s
}

func of(e *list.Element) *subject {
	s, _ := e.Value.(*subject) // nothing else is put there
	return s
}

// take takes one token, or says how long there is none; then it has taken none.
func take(l *rate.Limiter, now time.Time) time.Duration {
	r := l.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

func limited(detail string, wait time.Duration) error {
	return fault.New(fault.RateLimited, "ratelimit", fault.Detail(detail), fault.RetryAfter(wait))
}
