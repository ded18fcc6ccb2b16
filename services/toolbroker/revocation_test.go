package toolbroker

import (
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/fault"
)

// A revocation made while 100 calls a second run holds within one second: of the
// calls that begin a second or more after it not one is made, and what was made is
// exactly what was answered.
func TestARevocationHoldsWithinASecondUnderLoad(t *testing.T) {
	const (
		pace     = 10 * time.Millisecond // 100 calls a second
		early    = 100                   // calls before the revocation
		late     = 100                   // calls that begin a second or more after it
		atOnce   = 8                     // a slow machine makes fewer calls a second, not more at once
		deadline = 4 * time.Minute
	)
	s := newSession(t)
	type result struct {
		began time.Time
		err   error
	}
	var (
		mu      sync.Mutex
		results []result
		calls   sync.WaitGroup
		free    = make(chan struct{}, atOnce)
	)
	offer := func() {
		free <- struct{}{}
		calls.Go(func() {
			defer func() { <-free }()
			r := result{began: time.Now()}
			_, r.err = s.callAs(t.Context(), s.stand.Envelope(), "x.count", `{}`)
			mu.Lock()
			defer mu.Unlock()
			results = append(results, r)
		})
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for range early {
		<-tick.C
		offer()
	}
	revoked := make(chan time.Time, 1)
	go func() { // the calls go on meanwhile
		s.grants.forbid(t, subject, authz.ToolID("x.count"))
		revoked <- time.Now()
	}()
	var at time.Time
	for n, end := 0, time.After(deadline); n < late; {
		select {
		case <-end:
			t.Fatal("the revocation was not answered")
		case at = <-revoked:
			revoked = nil
		case <-tick.C:
			if offer(); !at.IsZero() && time.Since(at) >= time.Second {
				n++
			}
		}
	}
	calls.Wait()
	made, lateMade, lateRefused, unknown := 0, 0, 0, 0
	for _, r := range results {
		after := r.began.Sub(at) >= time.Second
		switch {
		case r.err == nil && after:
			lateMade++
		case after && fault.Is(r.err, fault.ToolDenied):
			lateRefused++
		case fault.Is(r.err, fault.ToolOutcomeUnknown): // there was no time left to hear it
			unknown++
		case r.err != nil && !fault.Is(r.err, fault.ToolDenied) && !fault.Is(r.err, fault.Capacity) &&
			!fault.Is(r.err, fault.DependencyUnavailable) && !fault.Is(r.err, fault.ToolUnavailable):
			// A machine that is too busy to ask in time refuses as well.
			t.Errorf("a call ended with %v", r.err)
		}
		if r.err == nil {
			made++
		}
	}
	if lateMade > 0 || lateRefused < late/10 || made < early/10 {
		t.Errorf("%d of %d calls were made; of those that began a second after the revocation %d were made and %d refused", made, len(results), lateMade, lateRefused)
	}
	if effects := len(s.count(t)); effects < made || effects > made+unknown {
		t.Errorf("%d effects of %d calls, and of %d nobody knows", effects, made, unknown)
	}
}
