package session

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/failpoint"
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
	// stuck says that the harness was given up: the terminal came before the stop.
	// The session's lock guards it.
	stuck   bool
	started event.RunStarted
	// brokered says of a tool id that its calls go through the ToolBroker.
	brokered func(toolID string) bool

	mu      sync.Mutex
	machine *event.Machine
	queue   queue
	// reason of the cancel that came first, while the run could still be
	// cancelled.
	reason event.CancelReason
	// broken is how the harness broke the lifecycle.
	broken *fault.Error
	// head is what became of the head that the run commits, revision its number, and
	// asked the interrupt that it names.
	head      head
	revision  uint64
	asked     event.InterruptRequested
	askedHash [sha256.Size]byte
	effects   effects
	// nested is what agents have taken to which calls delegate, and nests those that
	// are at work, by call.
	nested nested
	nests  map[string]*nest
	// delegates says of a tool id that its calls let another agent work.
	delegates func(toolID string) bool
}

func newRun(ctx context.Context, env fence.Envelope, digest [sha256.Size]byte, cfg Config, conversationID string, carried []event.Carried) *Run {
	// The context of the request that carries the stream gives its values only:
	// the run ends with that stream by Disconnected, which knows the reason.
	life, end := context.WithDeadline(context.WithoutCancel(ctx), env.Deadline)
	return &Run{
		env: env, digest: digest, cfg: cfg, ctx: life, end: end, stopped: make(chan struct{}),
		machine: event.NewMachine(env.RunID, conversationID, cfg.Bounds, carried...),
		effects: make(effects), nests: make(map[string]*nest),
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

// work is what a harness does in a run.
type work func(ctx context.Context, f harness.Facades, emit harness.Emitter) (harness.Result, error)

// run lets the harness work, after run.started.
func (r *Run) run(do work, f harness.Facades) (harness.Result, error) {
	failpoint.Reach(failpoint.WorkerStarted)
	if err := r.Emit(r.ctx, event.Draft{Data: r.started}); err != nil {
		return harness.Result{}, err
	}
	return r.guarded(do, f)
}

// guarded turns a panic of an adapter into the end of its run.
func (r *Run) guarded(do work, f harness.Facades) (result harness.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v, "session.run")
		}
	}()
	return do(r.ctx, f, r)
}

// panicked keeps of a panic what may be logged: the value may hold anything.
func panicked(v any, op string) error {
	what := fmt.Sprintf("%T", v)
	if e, ok := v.(runtime.Error); ok {
		what = e.Error()
	}
	return fault.Wrap(fmt.Errorf("adapter panicked: %s\n%s", what, debug.Stack()), fault.Internal, op)
}
