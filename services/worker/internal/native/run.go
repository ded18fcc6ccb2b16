package native

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync/atomic"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/native/model"
)

// stopModelCalls is the stop reason of a run that used up its model calls.
const stopModelCalls = "max_model_calls"

// run is one run: a turn, or the resume of one. Agents of it share what is here,
// also at the same time.
type run struct {
	*runtime
	harness.Facades

	model model.Model
	emit  harness.Emitter
	runID string
	// tag of the run, for ids: clients and providers see those of several runs side
	// by side.
	tag string
	// files and uploads of the run, for its tools.
	files   []harness.File
	uploads uploads
	// decided has the decisions that the run carries out; nil in a turn.
	decided *decisions

	texts, reasonings, calls atomic.Int64
	modelCalls, toolCalls    atomic.Int64
	used                     tally
	// slots bound how much happens at once: calls of tools, and below it, by depth,
	// subagents, which hold no slot of what they wait for.
	slots  chan struct{}
	agents [maxDepth]chan struct{}
	room   room
}

func (r *runtime) begin(runID string, f harness.Facades, emit harness.Emitter) *run {
	sum := sha256.Sum256([]byte(runID))
	out := &run{
		runtime: r, Facades: f, emit: emit, runID: runID, tag: hex.EncodeToString(sum[:6]),
		model: dial(r.construction.Model.Wire, f.Model),
		slots: make(chan struct{}, r.options.ParallelToolCalls),
	}
	for depth := range out.agents {
		out.agents[depth] = make(chan struct{}, r.options.ParallelToolCalls)
	}
	return out
}

// Stream runs the loop: model, tools, model, until the model has nothing more
// to call. Then the conversation is committed.
func (r *runtime) Stream(ctx context.Context, in harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	head, s, err := load(ctx, f.Thread)
	if err != nil {
		return harness.Result{}, err
	}
	t := r.begin(in.RunID, f, emit)
	t.files, t.uploads.left = in.Files, in.Uploads
	s.abandon()
	m, err := t.message(ctx, in)
	if err != nil {
		return harness.Result{}, err
	}
	s.Conversation.add(m)
	root := t.root(s.Conversation)
	reason, waits, err := root.loop(ctx)
	return root.conclude(ctx, head, s, reason, waits, err)
}

// root is the agent of the conversation itself.
func (r *run) root(c *conversation) *level {
	return &level{run: r, agent: r.runtime.root, conv: c}
}

// conclude ends the run: with a question for a person, or for good.
func (l *level) conclude(ctx context.Context, head harness.Head, s *state, reason string, waits bool, err error) (harness.Result, error) {
	switch {
	case err != nil:
		return harness.Result{}, err
	case waits:
		return harness.Result{}, l.interrupt(ctx, head, s)
	}
	s.Interrupt = ""
	payload, err := l.fit(ctx, s)
	if err != nil {
		return harness.Result{}, err
	}
	if err := l.tellUsage(ctx, true); err != nil {
		return harness.Result{}, err
	}
	return harness.Result{StopReason: reason}, l.Thread.Commit(ctx, codec(), head.Revision, payload)
}

// id of the nth thing of its kind in the run.
func (r *run) id(kind string, n int64) string { return fmt.Sprintf("%s-%s-%d", kind, r.tag, n) }

// warn tells people of something in words that name nobody and nothing.
func (l *level) warn(ctx context.Context, code, text string) error {
	return l.tell(ctx, event.Warning{Code: code, Message: text})
}

// fatal says whether an error ends the run whoever it came to: this run may do
// nothing more. Anything else is for a model to know.
func fatal(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	switch fault.CodeOf(err) {
	case fault.StaleLease, fault.Cancelled, fault.CapabilityExpired:
		return true
	default:
		return false
	}
}
