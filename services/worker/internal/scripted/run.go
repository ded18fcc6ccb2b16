package scripted

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// errEnded ends a script whose run has its end: by a commit, or a question.
var errEnded = errors.New("scripted: the run has its end")

// run is one run of a script.
type run struct {
	*runtime
	harness.Facades
	emit    harness.Emitter
	tag     string
	files   []harness.File
	uploads []harness.Upload
	// decision that the run carries out; nil in a turn.
	decision *harness.Decision
	revision uint64
	// rest of the script, after the step that is played at the top.
	rest script

	mu     sync.Mutex
	state  state
	number map[string]int
	// said is what the run said, for its state.
	said       strings.Builder
	stopReason string
}

// actor plays steps in a namespace.
type actor struct {
	*run
	namespace []string
}

// Stream plays the message, where it is a script; else the script of the
// options; else it says what it remembers.
func (r *runtime) Stream(ctx context.Context, in harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	s, err := r.scriptOf(in.Message)
	if err != nil {
		return harness.Result{}, fault.Wrap(err, fault.InvalidRequest, "scripted.Stream", fault.Detail("input.message: "+err.Error()))
	}
	n := r.run(in.RunID, f, emit)
	n.files, n.uploads = in.Files, in.Uploads
	if err := n.load(ctx); err != nil {
		return harness.Result{}, err
	}
	n.state.add(saying{User: in.Message})
	return n.play(ctx, s)
}

func (r *runtime) scriptOf(message string) (script, error) {
	switch {
	case strings.HasPrefix(strings.TrimSpace(message), "["):
		return parse([]byte(message), r.options.Hostile)
	case len(r.script.steps) > 0:
		return r.script, nil
	default:
		return parse([]byte(`[{"do":"recall"}]`), false)
	}
}

// Resume ends the calls that were decided on, and plays what was left of the
// script.
func (r *runtime) Resume(ctx context.Context, d harness.Decision, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	n := r.run(d.RunID, f, emit)
	n.decision, n.uploads = &d, d.Uploads
	if err := n.load(ctx); err != nil {
		return harness.Result{}, err
	}
	rest, err := n.state.takeRest(r.options.Hostile)
	if err != nil {
		return harness.Result{}, err
	}
	n.state.add(saying{})
	if err := n.carryOut(ctx, d); err != nil {
		return harness.Result{}, err
	}
	return n.play(ctx, rest)
}

func (r *runtime) run(runID string, f harness.Facades, emit harness.Emitter) *run {
	sum := sha256.Sum256([]byte(runID))
	return &run{runtime: r, Facades: f, emit: emit, tag: hex.EncodeToString(sum[:6]), number: map[string]int{}, stopReason: "stop"}
}

// play plays the steps at the top of a script, and commits at its end.
func (n *run) play(ctx context.Context, s script) (harness.Result, error) {
	a := actor{run: n}
	for i, st := range s.steps {
		n.rest = script{text: s.text[i+1:], steps: s.steps[i+1:]}
		if err := st.play(ctx, a); err != nil {
			if errors.Is(err, errEnded) {
				return harness.Result{StopReason: n.stopReason}, nil
			}
			return harness.Result{}, err
		}
	}
	if err := n.commit(ctx); err != nil {
		return harness.Result{}, err
	}
	return harness.Result{StopReason: n.stopReason}, nil
}

// steps plays steps below the top.
func (a actor) steps(ctx context.Context, s script) error {
	for _, st := range s.steps {
		if err := st.play(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// draft emits into the actor's namespace.
func (a actor) draft(ctx context.Context, d event.Data) error {
	return a.emit.Emit(ctx, event.Draft{Namespace: a.namespace, Data: d})
}

// id of the next thing of its kind.
func (n *run) id(of string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.number[of]++
	return fmt.Sprintf("%s-%s-%d", of, n.tag, n.number[of])
}

// say emits a message of its own.
func (a actor) say(ctx context.Context, text string) error {
	id := a.id("text")
	if err := a.draft(ctx, event.TextStarted{MessageID: id}); err != nil {
		return err
	}
	for rest := event.SanitizeText(text); rest != ""; {
		piece := event.Truncate(rest, maxPiece)
		rest = rest[len(piece):]
		if err := a.draft(ctx, event.TextDelta{MessageID: id, Delta: piece}); err != nil {
			return err
		}
	}
	a.note(text)
	return a.draft(ctx, event.TextFinished{MessageID: id})
}

// maxPiece of a text that is said in pieces, in bytes.
const maxPiece = 32 << 10

// note keeps of what was said as much as a state takes.
func (n *run) note(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.said.Len() > 0 {
		n.said.WriteByte(' ')
	}
	n.said.WriteString(event.Truncate(text, maxRemembered))
}
