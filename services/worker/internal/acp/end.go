package acp

import (
	"context"
	"errors"
	"fmt"

	sdk "github.com/coder/acp-go-sdk"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/loopback"
)

// Stop reasons of this adapter beside those of ACP.
const (
	// stopModelCalls is that of a turn that used up its model calls.
	stopModelCalls = "max_model_calls"
	// stopDenied is that of a turn that the agent gave up after a rejection.
	stopDenied = "tool_denied"
)

// end ends a run whose prompt was answered: every process of the agent first, then
// what is open, then the state.
func (t *turn) end(ctx context.Context, res prompted) (harness.Result, error) {
	if ctx.Err() != nil {
		return harness.Result{}, t.broke(ctx, ctx.Err())
	}
	outcome := t.run.Outcome()
	t.run.Close()
	reason, err := t.outcome(ctx, res, outcome)
	if err != nil {
		return harness.Result{}, t.broke(ctx, err)
	}
	t.answerAll(cancelledOutcome())
	t.program.client.detach()
	if err := t.program.stop(ctx, true); err != nil {
		return harness.Result{}, t.broke(ctx, err)
	}
	if err := t.close(outcome); err != nil {
		return harness.Result{}, t.broke(ctx, err)
	}
	payload, err := t.archive(ctx, header{Session: t.program.session, Made: t.made})
	if err != nil {
		return harness.Result{}, t.broke(ctx, err)
	}
	t.shut()
	if err := t.facades.Thread.Commit(ctx, codec(&t.cfg.Preset), t.revision, payload); err != nil {
		return harness.Result{}, t.broke(ctx, err)
	}
	t.at, t.dirty = t.revision+1, false
	return harness.Result{StopReason: reason}, nil
}

// close emits what is left to say.
func (t *turn) close(o loopback.Outcome) error {
	return t.project(func(p *projector) ([]event.Draft, error) {
		out := append(p.finish(nil), p.overdue(nil)...)
		if o.Result == loopback.Exhausted {
			out = append(out, p.warn(stopModelCalls, "The run has used up its model calls.")...)
		}
		return append(out, t.usage(true)...), nil
	})
}

// outcome says how the turn went. The agent's word counts only where the model's
// last answer was whole: several agents end a turn in order whose model has
// failed.
func (t *turn) outcome(ctx context.Context, res prompted, o loopback.Outcome) (stopReason string, err error) {
	const op = "acp.outcome"
	switch {
	case res.err != nil && t.program.gone(ctx):
		return "", t.program.exited(ctx)
	case o.Result == loopback.Exhausted:
		return stopModelCalls, nil
	case o.Result == loopback.Failed, o.Result == loopback.Cut:
		return "", modelFault(o)
	case res.err != nil:
		cause := errors.New("the agent answered the prompt with an error")
		if refused, ok := errors.AsType[*sdk.RequestError](res.err); ok { // its text may be anything
			cause = fmt.Errorf("the agent answered the prompt with error code %d", refused.Code)
		}
		return "", fault.Wrap(cause, fault.Protocol, op)
	case res.stop == sdk.StopReasonCancelled && t.wasRejected():
		return stopDenied, nil
	case res.stop == sdk.StopReasonCancelled:
		return "", fault.Wrap(errors.New("the agent says that the turn was cancelled, which it was not"), fault.Protocol, op)
	case res.stop == "":
		return "", fault.Wrap(errors.New("the agent gave no stop reason"), fault.Protocol, op)
	default:
		return string(res.stop), nil
	}
}

func (t *turn) wasRejected() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rejected
}

// modelFault is the error of a model that failed. That it is throttled is one of
// its ways of being unavailable.
func modelFault(o loopback.Outcome) error {
	code := fault.ModelFailed
	if o.Result == loopback.Failed && o.Code != "" {
		code = o.Code
	}
	if code == fault.RateLimited {
		code = fault.ModelUnavailable
	}
	cause := fmt.Errorf("the last model call was %s, status %d", o.Result, o.Status)
	return fault.Wrap(cause, code, "acp.outcome", fault.RetryAfter(o.RetryAfter))
}
