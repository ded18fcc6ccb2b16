//go:build cluster

package installation

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/internal/apiclient"
)

// many is how many bindings there are at once.
const many = 20

// few of the second twenty may have cold starts, and as many sandboxes are warm then at most.
const few = 4

// Twenty conversations at once have a claim, a sandbox and a pod each, and keep them in
// their next turns; those that are released have gone; and of twenty more, while the
// pool refills, each is refused for want of capacity or has a pod that nobody else ever had, as its
// profile says.
func TestTwentyBindingsAtOnce(t *testing.T) {
	i := installation.Shared(t, config)
	user, operator := i.User(t), i.Operator(t)
	i.Pool(t, many)
	seen := &seats{pods: map[types.UID]string{}, sandboxes: map[types.UID]string{}, claims: map[types.UID]string{}}

	first := talks(t, i, user, installation.Agent)
	before := make([]installation.Seat, many)
	together(func(n int) {
		r, err := first[n].tell(t, fmt.Sprintf("the word is w%d", n))
		if err == nil {
			before[n], err = i.SeatOf(t.Context(), operator, r.BindingID)
		}
		if err != nil {
			t.Errorf("conversation %d: %v", n, err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	for n, s := range before {
		seen.take(t, fmt.Sprintf("conversation %d", n), s)
	}
	together(func(n int) {
		r, err := first[n].tell(t, "What do you remember?")
		if err != nil {
			t.Errorf("conversation %d: %v", n, err)
			return
		}
		if word := fmt.Sprintf("w%d", n); !strings.Contains(r.Text(), word) {
			t.Errorf("conversation %d does not remember %s: %q", n, word, r.Text())
		}
		s, err := i.SeatOf(t.Context(), operator, r.BindingID)
		if err != nil {
			t.Errorf("conversation %d: %v", n, err)
		} else if was := before[n]; s.Claim != was.Claim || s.Sandbox != was.Sandbox || s.Pod.UID != was.Pod.UID || s.Generation != was.Generation {
			t.Errorf("conversation %d was in pod %s of generation %d and is in %s of %d", n, was.Pod.UID, was.Generation, s.Pod.UID, s.Generation)
		}
	})

	// The pool is used up, and makes some others. Of twenty more those of the profile that waits for no cold start have one of these or none.
	i.Shrink(t, few)
	more := talks(t, i, user, installation.Warm)
	for n := range few {
		more[n] = talk{i.TalkAs(t, user, installation.Agent)}
	}
	got := make([]*installation.Seat, many)
	together(func(n int) {
		r, err := more[n].tell(t, "hello")
		if capacity(r, err) {
			if retryAfter(r, err) <= 0 {
				t.Errorf("%s %d: refused without a time to come again", more[n].Agent, n)
			}
			return
		}
		s, serr := i.SeatOf(t.Context(), operator, r.BindingID)
		if err != nil || serr != nil {
			t.Errorf("%s %d: %v, %v", more[n].Agent, n, err, serr)
			return
		}
		got[n] = &s
	})
	served := map[string]int{}
	for n, s := range got {
		if s != nil {
			served[more[n].Agent]++
			seen.take(t, fmt.Sprintf("%s %d", more[n].Agent, n), *s)
		}
	}
	t.Logf("of %d more were served, by agent: %v; the others had no capacity", many, served)
	if served[installation.Agent] == 0 || served[installation.Warm] == many-few {
		t.Errorf("no cold start, or a pool that never was empty: %v", served)
	}
	together(func(n int) { more[n].Release(t) })
	together(func(n int) { first[n].Release(t) })
	for _, s := range before {
		i.Gone(t, s)
	}
}

// seats are whose each claim, sandbox and pod was.
type seats struct{ claims, sandboxes, pods map[types.UID]string }

func (s *seats) take(t *testing.T, who string, at installation.Seat) {
	t.Helper()
	for what, m := range map[string]map[types.UID]string{"claim": s.claims, "sandbox": s.sandboxes, "pod": s.pods} {
		uid := map[string]types.UID{"claim": at.Claim, "sandbox": at.Sandbox, "pod": at.Pod.UID}[what]
		if other, taken := m[uid]; taken || uid == "" {
			t.Errorf("%s has the %s %q, which is that of %s", who, what, uid, other)
		}
		m[uid] = who
	}
}

type talk struct{ *installation.Talk }

func talks(t *testing.T, i *installation.Installation, user *apiclient.Client, agent string) []talk {
	t.Helper()
	all := make([]talk, many)
	for n := range all {
		all[n] = talk{i.TalkAs(t, user, agent)}
	}
	return all
}

// tell runs a turn that has to finish.
func (c talk) tell(t *testing.T, message string) (installation.Turn, error) {
	run, err := c.Start(t.Context(), message)
	if err != nil {
		return installation.Turn{}, err
	}
	r, err := c.Follow(t.Context(), run)
	if err == nil && r.Ending() != "run.finished" {
		err = fmt.Errorf("ended as %s", r)
	}
	return r, err
}

// capacity reports whether a turn was refused for want of a sandbox.
func capacity(r installation.Turn, err error) bool {
	if apiclient.CodeOf(err) == "sandbox_capacity" {
		return true
	}
	return len(r.Events) > 0 && r.Ending() == "run.error sandbox_capacity"
}

// retryAfter is when whoever was refused may come again, in seconds.
func retryAfter(r installation.Turn, err error) int {
	if refused, ok := errors.AsType[*apiclient.Error](err); ok {
		return refused.RetryAfter
	}
	return r.RetryAfter()
}

// together does something for many at once.
func together(do func(n int)) {
	var wg sync.WaitGroup
	for n := range many {
		wg.Go(func() { do(n) })
	}
	wg.Wait()
}
