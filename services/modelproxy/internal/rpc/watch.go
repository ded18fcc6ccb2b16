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
	// atOncePerRun is how many calls of one run may go on at once. More are
	// rate_limited, so that no run takes every slot of the proxy.
	atOncePerRun = 8
	// sweepEvery is how often runs whose time is over are forgotten.
	sweepEvery = time.Minute
)

// runs counts the calls of runs, and ends those whose run is over. The counts
// are those of this process: a proxy that was started again begins anew.
type runs struct {
	guard *fence.Guard
	every time.Duration
	most  int // calls of one run
	now   func() time.Time

	mu    sync.Mutex
	run   map[string]*calls
	swept time.Time
}

// calls of one run.
type calls struct {
	open, total int
	until       time.Time // the run's deadline
}

func newRuns(guard *fence.Guard, every time.Duration, most int) *runs {
	return &runs{guard: guard, every: every, most: most, now: time.Now, run: map[string]*calls{}}
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
		if err := r.enter(env.RunID, grant.Committed().RunDeadline); err != nil {
			fault.WriteHTTP(w, err)
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

// enter counts a call that begins, or refuses it: rate_limited where too many of
// the run go on, access_denied where it has had all that it may.
func (r *runs) enter(runID string, until time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep()
	c := r.run[runID]
	if c == nil {
		c = &calls{until: until}
		r.run[runID] = c
	}
	switch {
	case c.total >= r.most:
		return fault.New(fault.AccessDenied, "modelproxy.enter", fault.Detail("model calls: the run has made as many as it may"))
	case c.open >= atOncePerRun:
		return fault.New(fault.RateLimited, "modelproxy.enter", fault.RetryAfter(time.Second))
	}
	c.open++
	c.total++
	return nil
}

func (r *runs) leave(runID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run[runID].open--
}

// sweep forgets the runs whose deadline has passed: the fence refuses them.
func (r *runs) sweep() {
	now := r.now()
	if now.Sub(r.swept) < sweepEvery {
		return
	}
	r.swept = now
	for id, c := range r.run {
		if c.open == 0 && now.After(c.until) {
			delete(r.run, id)
		}
	}
}
