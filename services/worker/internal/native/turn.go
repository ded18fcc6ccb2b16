package native

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/harness"
)

// stopModelCalls is the stop reason of a turn that used up its model calls.
const stopModelCalls = "max_model_calls"

// turn is one turn of the loop.
type turn struct {
	*runtime
	harness.Facades
	in    harness.Turn
	emit  harness.Emitter
	chat  openai.ChatCompletionService
	state state
	usage usage
	// tag of the run, for ids; and how many of each there are.
	tag                       string
	texts, reasonings, called int
}

// Stream runs the loop: model, tools, model, until the model has nothing more
// to call. Then the conversation is committed.
func (r *runtime) Stream(ctx context.Context, in harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	head, err := f.Thread.Load(ctx, codec())
	if err != nil {
		return harness.Result{}, err
	}
	t := &turn{
		runtime: r, Facades: f, in: in, emit: emit, tag: tagOf(in.RunID),
		// Unlike a client, this service reads nothing from the environment. The
		// worker has no model credential: the proxy adds it outside.
		chat: openai.NewChatCompletionService(
			option.WithBaseURL(f.Model.BaseURL), option.WithHTTPClient(f.Model.HTTP), option.WithMaxRetries(0)),
	}
	if t.state, err = decodeState(head); err != nil {
		return harness.Result{}, err
	}
	text, err := t.userText(ctx)
	if err != nil {
		return harness.Result{}, err
	}
	t.state.add(message{Role: roleUser, Text: text})
	reason, err := t.loop(ctx)
	if err != nil {
		return harness.Result{}, err
	}
	if err := t.emitUsage(ctx, true); err != nil {
		return harness.Result{}, err
	}
	payload, err := t.state.encode(r.construction.Limits.StateBytes)
	if err != nil {
		return harness.Result{}, err
	}
	if err := f.Thread.Commit(ctx, codec(), head.Revision, payload); err != nil {
		return harness.Result{}, err
	}
	return harness.Result{StopReason: reason}, nil
}

func (t *turn) loop(ctx context.Context) (stopReason string, err error) {
	for range t.construction.Limits.ModelCalls {
		// What cannot be kept is found out before anything more is done.
		if _, err := t.state.encode(t.construction.Limits.StateBytes); err != nil {
			return "", err
		}
		a, err := t.ask(ctx)
		if err != nil {
			return "", err
		}
		t.state.add(a.message())
		if len(a.calls) == 0 {
			return a.stopReason, nil
		}
		results, err := t.callTools(ctx, a)
		if err != nil {
			return "", err
		}
		t.state.add(results...)
		if err := t.emitUsage(ctx, false); err != nil {
			return "", err
		}
	}
	return stopModelCalls, t.warn(ctx, stopModelCalls, "The run has used up its model calls.")
}

func (t *turn) warn(ctx context.Context, code, text string) error {
	return t.emit.Emit(ctx, event.Draft{Data: event.Warning{Code: code, Message: text}})
}

// tagOf makes ids differ between the runs of a conversation: clients and
// providers see them side by side.
func tagOf(runID string) string {
	sum := sha256.Sum256([]byte(runID))
	return hex.EncodeToString(sum[:6])
}

// id of the nth thing of its kind in the run.
func (t *turn) id(kind string, n int) string { return fmt.Sprintf("%s-%s-%d", kind, t.tag, n) }
