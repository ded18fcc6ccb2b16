package rpc

import (
	"context"
	"net/http"
	"sync"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	pkgrpc "cofferdam.dev/pkg/rpc"
)

const (
	// fenceEvery is how often the fence is asked again while a call goes on: a
	// model's stream must not outlive its run or its lease for long.
	fenceEvery = 2 * time.Second
	// callsPerRun is how many calls of one run may go on at once. More are
	// rate_limited, so that no run takes every slot of the proxy.
	callsPerRun = 8
)

// runs counts the calls that go on, and ends those whose run is over.
type runs struct {
	guard *fence.Guard
	every time.Duration

	mu   sync.Mutex
	open map[string]int
}

func newRuns(guard *fence.Guard, every time.Duration) *runs {
	return &runs{guard: guard, every: every, open: map[string]int{}}
}

// watched serves a call for as long as its run is the committed one.
func (r *runs) watched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		grant, err := pkgrpc.GrantFrom(req.Context())
		if err != nil {
			fault.WriteHTTP(w, err)
			return
		}
		env := grant.Envelope()
		if !r.enter(env.RunID) {
			fault.WriteHTTP(w, fault.New(fault.RateLimited, "modelproxy.watched", fault.RetryAfter(time.Second)))
			return
		}
		defer r.leave(env.RunID)
		ctx, end := context.WithCancelCause(req.Context())
		var wg sync.WaitGroup
		wg.Go(func() { r.watch(ctx, env, end) })
		defer wg.Wait()
		defer end(nil)
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

// watch ends the call once the fence refuses its run. A store that does not
// answer says nothing: the call goes on, at most until its deadline.
func (r *runs) watch(ctx context.Context, env fence.Envelope, end context.CancelCauseFunc) {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := r.guard.Admit(ctx, env); fault.Is(err, fault.StaleLease) {
			end(err)
			return
		}
	}
}

func (r *runs) enter(runID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[runID] >= callsPerRun {
		return false
	}
	r.open[runID]++
	return true
}

func (r *runs) leave(runID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[runID]--; r.open[runID] == 0 {
		delete(r.open, runID)
	}
}
