package native

import (
	"context"
	"errors"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// notAnswered is what a model reads of a call that nobody decided on.
const notAnswered = "This call was not made: the question about it was not answered."

// Resume goes on where a person was asked, from the committed state alone.
func (r *runtime) Resume(ctx context.Context, d harness.Decision, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	head, s, err := load(ctx, f.Thread)
	if err != nil {
		return harness.Result{}, err
	}
	if s.Interrupt == "" || s.Interrupt != d.Interrupt.InterruptID {
		return harness.Result{}, fault.Wrap(errors.New("thread state waits for another answer, or for none"), fault.InterruptConflict, "native.Resume")
	}
	s.Interrupt = ""
	t := r.begin(d.RunID, f, emit)
	t.decided, t.uploads.left = newDecisions(d), d.Uploads
	root := t.root(s.Conversation)
	reason, waits, err := root.goOn(ctx)
	return root.conclude(ctx, head, s, reason, waits, err)
}

// abandon gives up what waits for an answer that never came: the person has said
// something else.
func (s *state) abandon() {
	c := s.Conversation
	if len(c.Open) == 0 {
		return
	}
	for i := range c.Open {
		if c.Open[i].Progress != callDone {
			c.Open[i].result(notAnswered, true)
		}
	}
	c.settle()
	s.Interrupt = ""
}
