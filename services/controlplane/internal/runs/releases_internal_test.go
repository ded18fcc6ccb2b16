package runs

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// What is known of claims does not grow with those that once failed and that somebody
// else has released since, and a claim that is still named rests on.
func TestClaimsThatNobodyNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		r := newReleases(life)
		tried := 0
		fails := func(context.Context) error { return errors.New("it is stuck") }
		for i := range 1000 {
			r.begin("gone-"+strconv.Itoa(i), fails)
		}
		for range 2 * int(unnamedFor/time.Second) {
			time.Sleep(time.Second) //nolint:forbidigo // the clock of a synctest bubble
			r.begin("stuck", func(context.Context) error { tried++; return errors.New("it is stuck") })
		}
		synctest.Wait()
		if len(r.claims) != 1 || r.claims["stuck"] == nil || r.running+r.retrying+len(r.first)+len(r.again) > 0 {
			t.Errorf("%d claims are known, %d run and %d wait", len(r.claims), r.running, len(r.first)+len(r.again))
		}
		// 6 times in the first minute, and then once a minute or a little less often.
		if least, most := 20, 26; tried < least || tried > most {
			t.Errorf("tried %d times in twenty minutes, want %d to %d", tried, least, most)
		}
		end()
		r.wait()
		r.begin("late", fails)
		r.wait()
		if len(r.claims) != 1 {
			t.Error("something begins after the end")
		}
	})
}
