package ratelimit_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func small() ratelimit.Config {
	return ratelimit.Config{RequestsPerSecond: 2, RequestBurst: 3, StartsPerSecond: 0.5, StartBurst: 1, Open: 2, Subjects: 4}
}

// at is a limiter with a clock of its own.
func at(c ratelimit.Config) (l *ratelimit.Limiter, pass func(time.Duration)) {
	now := time.Unix(1700000000, 0)
	c.Now = func() time.Time { return now }
	return ratelimit.New(c), func(d time.Duration) { now = now.Add(d) }
}

// once makes a request that ends at once.
func once(t *testing.T, l *ratelimit.Limiter, name string, after time.Duration) {
	t.Helper()
	leave, err := l.Enter(name)
	wants(t, err, after)
	if err == nil {
		leave()
	}
}

func wants(t *testing.T, err error, after time.Duration) {
	t.Helper()
	if after == 0 {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	if e := fault.From(err, ""); !fault.Is(err, fault.RateLimited) || e.RetryAfter() != after || e.Safe().RetryAfterSeconds == nil {
		t.Errorf("%v, want rate_limited and %v", err, after)
	}
}

// Who asks too often is told when to ask again, and is let in then; who is refused
// uses nothing up, and others are not concerned.
func TestRequests(t *testing.T) {
	t.Parallel()
	l, pass := at(small())
	for range 3 {
		once(t, l, "a", 0)
	}
	for range 100 {
		once(t, l, "a", 500*time.Millisecond)
	}
	once(t, l, "b", 0)
	pass(499 * time.Millisecond)
	once(t, l, "a", time.Millisecond)
	pass(time.Millisecond)
	once(t, l, "a", 0)
	once(t, l, "a", 500*time.Millisecond)
	pass(time.Hour)
	for range 3 {
		once(t, l, "a", 0)
	}
	once(t, l, "a", 500*time.Millisecond)
}

func TestStarts(t *testing.T) {
	t.Parallel()
	l, pass := at(small())
	wants(t, l.Start("a"), 0)
	wants(t, l.Start("a"), 2*time.Second)
	wants(t, l.Start("b"), 0)
	pass(2 * time.Second)
	wants(t, l.Start("a"), 0)
}

// A request is open until it is answered, however often that is said.
func TestOpen(t *testing.T) {
	t.Parallel()
	l, pass := at(small())
	first, err := l.Enter("a")
	wants(t, err, 0)
	second, err := l.Enter("a")
	wants(t, err, 0)
	once(t, l, "a", time.Second)
	once(t, l, "b", 0)
	first()
	first()
	pass(time.Second)
	third, err := l.Enter("a")
	wants(t, err, 0)
	once(t, l, "a", time.Second)
	second()
	third()
	once(t, l, "a", 0)
}

// However many subjects ask, no more are known than there may be, but for those with
// open requests; and of those nobody is forgotten.
func TestTheTableIsBounded(t *testing.T) {
	t.Parallel()
	l, _ := at(small())
	leave, err := l.Enter("open")
	wants(t, err, 0)
	for i := range 1000 {
		once(t, l, fmt.Sprint("s", i), 0)
	}
	if n := l.Subjects(); n > 4 {
		t.Errorf("%d subjects are known", n)
	}
	second, err := l.Enter("open")
	wants(t, err, 0)
	once(t, l, "open", time.Second) // both are counted
	leave()
	second()
	for i := range 10 {
		leave, err := l.Enter(fmt.Sprint("t", i))
		wants(t, err, 0)
		t.Cleanup(leave)
	}
	if n := l.Subjects(); n != 10 {
		t.Errorf("%d subjects have open requests", n)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	if err := small().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*ratelimit.Config){
		"no requests":        func(c *ratelimit.Config) { c.RequestsPerSecond = 0 },
		"not a number":       func(c *ratelimit.Config) { c.StartsPerSecond = math.NaN() },
		"without end":        func(c *ratelimit.Config) { c.StartsPerSecond = math.Inf(1) },
		"no burst":           func(c *ratelimit.Config) { c.RequestBurst = 0 },
		"a negative burst":   func(c *ratelimit.Config) { c.StartBurst = -1 },
		"nothing open":       func(c *ratelimit.Config) { c.Open = 0 },
		"too many subjects":  func(c *ratelimit.Config) { c.Subjects = 1_000_001 },
		"a rate beyond what": func(c *ratelimit.Config) { c.RequestsPerSecond = 1e9 },
	} {
		c := small()
		if change(&c); c.Validate() == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
