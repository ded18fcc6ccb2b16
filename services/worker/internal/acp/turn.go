package acp

import (
	"context"
	"errors"
	"sync"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/loopback"
)

// block is one part of a prompt.
type block = sdk.ContentBlock

// turn is one run of the agent.
type turn struct {
	*runtime

	facades  harness.Facades
	emit     harness.Emitter
	tag      string
	revision uint64
	made     int64
	loaded   bool // the session, in this turn
	run      *loopback.Run
	program  *program
	life     context.Context //nolint:containedctx // the life of the run, for what the agent says

	// asked has a token once there is a question for a person.
	asked chan struct{}
	// failed is closed when an event could not be emitted.
	failed chan struct{}

	mu        sync.Mutex
	projector *projector
	closed    bool
	failure   error
	// asks are the questions that are open, and brokered the calls that wait at the
	// MCP endpoint.
	asks     []*ask
	brokered []waiting
	lastAsk  time.Time
	// suspended says that what is asked from now on is for no person any more.
	suspended bool
	// rejected says that a question was answered with no, after which an agent may
	// end its turn as it likes.
	rejected bool
}

func (r *runtime) newTurn(ctx context.Context, runID string, f harness.Facades, emit harness.Emitter) *turn {
	tag := tagOf(runID)
	return &turn{
		runtime: r, facades: f, emit: emit, tag: tag, life: ctx, projector: newProjector(tag, r.tools, r.cfg.Preset.DropText),
		asked: make(chan struct{}, 1), failed: make(chan struct{}),
	}
}

// project lets the projector make events of something, and emits them in the order
// in which they were made.
func (t *turn) project(step func(p *projector) ([]event.Draft, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return fault.New(fault.Cancelled, "acp.project")
	}
	drafts, err := step(t.projector)
	for _, d := range drafts {
		if err != nil {
			break
		}
		err = t.emit.Emit(t.life, d)
	}
	if err != nil && t.failure == nil {
		t.failure = err
		close(t.failed)
	}
	return err
}

// update implements turnListener.
func (t *turn) update(u update) error {
	// Whatever comes before the model was asked is the replay of an agent that
	// replays late.
	if t.loaded && t.cfg.Preset.LateReplay && t.run.ModelCalls() == 0 {
		t.outside(u)
		return nil
	}
	_ = t.project(func(p *projector) ([]event.Draft, error) { return p.update(u) }) // it ends the turn by failed
	return nil
}

// outside implements turnListener.
func (t *turn) outside(u update) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.projector.outside(u)
}

// modelCallEnded tells what the run has used so far.
func (t *turn) modelCallEnded(context.Context) {
	_ = t.project(func(*projector) ([]event.Draft, error) { return t.usage(false), nil })
}

func (t *turn) usage(final bool) []event.Draft {
	u := t.run.Usage()
	if !u.Known() {
		return nil
	}
	return []event.Draft{{Data: event.UsageUpdated{InputTokens: u.Input, OutputTokens: u.Output, CachedInputTokens: u.Cached, Final: final}}}
}

// begin sends the prompt.
func (t *turn) begin(ctx context.Context, blocks []block) {
	p := t.program
	p.client.attach(t, p.session, true)
	p.work.Go(func() {
		// The request outlives the run's context: a prompt is cancelled by
		// session/cancel, and its answer is waited for.
		res, err := p.conn.Prompt(context.WithoutCancel(ctx), sdk.PromptRequest{SessionId: sdk.SessionId(p.session), Prompt: blocks})
		p.prompted <- prompted{stop: res.StopReason, err: err}
	})
}

// drive waits for what ends the run, and ends it.
func (t *turn) drive(ctx context.Context) (harness.Result, error) {
	p := t.program
	for {
		select {
		case res := <-p.prompted:
			return t.end(ctx, res)
		case <-t.asked:
			if t.settled(ctx) {
				return harness.Result{}, t.suspend(ctx)
			}
		case <-p.broken:
			return harness.Result{}, t.broke(ctx, p.failure())
		case <-p.proc.Done():
			return t.gone(ctx)
		case <-t.run.Fatal():
			return harness.Result{}, t.broke(ctx, t.run.Err())
		case <-t.failed:
			return harness.Result{}, t.broke(ctx, t.failure)
		case <-ctx.Done():
			return harness.Result{}, t.cancel(ctx)
		}
	}
}

// gone is the end of a program that has ended, perhaps after it had answered.
func (t *turn) gone(ctx context.Context) (harness.Result, error) {
	p := t.program
	select {
	case res := <-p.prompted:
		if res.err == nil {
			return t.end(ctx, res)
		}
	case <-time.After(p.grace):
	case <-ctx.Done():
		return harness.Result{}, t.cancel(ctx)
	}
	return harness.Result{}, t.broke(ctx, p.exited(ctx))
}

// broke ends a run that failed. Where its context has ended, that is the reason.
func (t *turn) broke(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return errors.Join(fault.From(err, "acp.turn"), t.quit(ctx))
}

// quit ends everything of the turn at once. Nothing is emitted afterwards.
func (t *turn) quit(ctx context.Context) error {
	t.shut()
	t.run.Close()
	t.answerAll(cancelledOutcome())
	if t.program == nil {
		return nil
	}
	t.program.client.detach()
	err := t.program.stop(ctx, false)
	if err != nil {
		t.cfg.Logger.ErrorContext(ctx, "the agent could not be ended", "error", err.Error())
	}
	return err
}

func (t *turn) shut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// cancel asks the agent to stop, waits a moment for its word, and then ends it,
// whatever its word was: some work on after "cancelled".
func (t *turn) cancel(ctx context.Context) error {
	p := t.program
	t.shut()
	asked, done := context.WithTimeout(context.WithoutCancel(ctx), p.grace)
	defer done()
	_ = p.ask(asked, func(ctx context.Context) error { // what it answers changes nothing
		return p.conn.Cancel(ctx, sdk.CancelNotification{SessionId: sdk.SessionId(p.session)})
	})
	t.answerAll(cancelledOutcome())
	select {
	case <-p.prompted:
	case <-p.conn.Done():
	case <-p.broken:
	case <-asked.Done():
	}
	return errors.Join(fault.From(ctx.Err(), "acp.cancel"), t.quit(ctx))
}
