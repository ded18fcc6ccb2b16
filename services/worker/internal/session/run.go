package session

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/worker/internal/harness"
)

// Run is one run of the worker: a harness that emits at one end, and one reader
// at the other. Between them stands a bounded queue, so that a slow reader holds
// the harness back.
type Run struct {
	env    fence.Envelope
	digest [sha256.Size]byte
	cfg    Config

	// ctx is the life of the harness in this run. It ends at the deadline.
	ctx context.Context //nolint:containedctx // the life of the run, which cancel ends
	end context.CancelFunc
	// stopped is closed once the harness has stopped and the terminal is known.
	stopped chan struct{}
	started event.RunStarted

	mu      sync.Mutex
	machine *event.Machine
	queue   queue
	// reason of the cancel that came first, while the run could still be
	// cancelled.
	reason event.CancelReason
	// broken is how the harness broke the lifecycle.
	broken *fault.Error
	// covered says that a head commit covers what was emitted: nothing but the
	// terminal may follow.
	covered   bool
	committed bool
	effects   effects
}

func newRun(ctx context.Context, env fence.Envelope, digest [sha256.Size]byte, cfg Config, conversationID string) *Run {
	// The context of the request that carries the stream gives its values only:
	// the run ends with that stream by Disconnected, which knows the reason.
	life, end := context.WithDeadline(context.WithoutCancel(ctx), env.Deadline)
	return &Run{
		env: env, digest: digest, cfg: cfg, ctx: life, end: end, stopped: make(chan struct{}),
		machine: event.NewMachine(env.RunID, conversationID, cfg.Bounds),
	}
}

// replay is a run that has nothing but its terminal.
func replay(ctx context.Context, env fence.Envelope, terminal event.Event) *Run {
	life, end := context.WithCancel(ctx)
	end()
	r := &Run{env: env, ctx: life, end: end}
	r.queue.push(terminal, 0)
	r.queue.close(true)
	return r
}

// Envelope of the run's start.
func (r *Run) Envelope() fence.Envelope { return r.env }

// Disconnected says that nobody reads the run's events any more, which cancels
// the run.
func (r *Run) Disconnected() { r.cancel(event.CancelledByDisconnect) }

// cancel ends the run's context; the first reason stands.
func (r *Run) cancel(reason event.CancelReason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason == "" && r.ctx.Err() == nil {
		r.reason = reason
	}
	r.end()
}

// run lets the harness run, after run.started.
func (r *Run) run(turn harness.Turn, f harness.Facades, rt harness.Runtime) (harness.Result, error) {
	if err := r.Emit(r.ctx, event.Draft{Data: r.started}); err != nil {
		return harness.Result{}, err
	}
	return r.stream(turn, f, rt)
}

// stream turns a panic of an adapter into the end of its run.
func (r *Run) stream(turn harness.Turn, f harness.Facades, rt harness.Runtime) (result harness.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v, "session.stream")
		}
	}()
	return rt.Stream(r.ctx, turn, f, r)
}

// panicked keeps of a panic what may be logged: the value may hold anything.
func panicked(v any, op string) error {
	what := fmt.Sprintf("%T", v)
	if e, ok := v.(runtime.Error); ok {
		what = e.Error()
	}
	return fault.Wrap(fmt.Errorf("adapter panicked: %s\n%s", what, debug.Stack()), fault.Internal, op)
}
