package loopback

import (
	"context"
	"errors"
	"sync"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// RunConfig is one run's way out.
type RunConfig struct {
	// Tag is part of the ids of the run's tool calls: 1 to 64 characters of an id.
	Tag string
	// Model and Tools are the run's facades.
	Model harness.Model
	Tools harness.ToolCaller
	// Limits of the run; those of model and tool calls are enforced here. 0 allows
	// none.
	Limits harness.Limits
	// Emit takes the events of tool calls, which come from the ToolBroker's answers
	// and from nothing else.
	Emit harness.Emitter
	// Gate decides on tool calls; nil lets each pass that needs no approval.
	Gate Gate
	// ModelCallEnded is told of the end of each model call; nil is not.
	ModelCallEnded func(ctx context.Context)
}

// Run is the time in which the endpoints answer.
type Run struct {
	cfg    RunConfig
	server *Server
	ctx    context.Context //nolint:containedctx // the life of the run, which Close ends
	cancel context.CancelFunc
	busy   sync.WaitGroup
	fatal  chan struct{}

	mu       sync.Mutex
	models   ledger
	numbered int // tool calls
	calling  int // those that the broker is making
	failure  error
}

// Begin opens the endpoints for a run, which ends by Close, or with ctx. Errors:
// internal while another run is open.
func (s *Server) Begin(ctx context.Context, cfg RunConfig) (*Run, error) {
	r := &Run{cfg: cfg, server: s, fatal: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		r.cancel()
		return nil, fault.Wrap(errors.New("the endpoints serve another run"), fault.Internal, "loopback.Begin")
	}
	s.run = r
	return r, nil
}

// enter counts a request into the run that is open.
func (s *Server) enter() (*Run, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil || s.run.ctx.Err() != nil {
		return nil, false
	}
	s.run.busy.Add(1)
	return s.run, true
}

func (r *Run) leave() { r.busy.Done() }

// Close shuts the endpoints, ends what is under way, and waits for it: nothing
// of the run is emitted afterwards. It is repeatable.
func (r *Run) Close() {
	r.server.mu.Lock()
	if r.server.run == r {
		r.server.run = nil
	}
	r.cancel()
	r.server.mu.Unlock()
	r.busy.Wait()
}

// Fatal is closed when a broker said that this run may do nothing more, or when the
// model has failed too often in a row. Err says what.
func (r *Run) Fatal() <-chan struct{} { return r.fatal }

// Err is why the run may do nothing more, or nil.
func (r *Run) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// fail keeps the first reason.
func (r *Run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = err
		close(r.fatal)
	}
}
