package call

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/toolbroker/internal/elicit"
	"cofferdam.dev/services/toolbroker/internal/project"
)

// UserAnswer is what a worker brings of a person's decision. None of it is
// believed: it has to be the decision that the committed record has, on a question
// that the ledger has.
type UserAnswer struct {
	// AskedBy is the run in which the tool asked, and Key the key of the call that
	// it asked in.
	AskedBy, Key string
	// Form has the values by field name as JSON text, unless it was Dismissed.
	Form      []byte
	Dismissed bool
}

// question makes the interrupts of a call.
type question struct {
	grant fence.Grant
	agent string
}

// asked is a question as the ledger keeps it.
type asked struct {
	// Interrupt is the payload of interrupt.requested in its published form.
	Interrupt json.RawMessage `json:"interrupt"`
	// Call is the digest of tool and arguments.
	Call   string          `json:"call"`
	Params json.RawMessage `json:"params"`
	Key    string          `json:"key,omitempty"`
	State  []byte          `json:"state,omitempty"`

	interrupt event.InterruptRequested
}

// ask makes the interrupt; nil where nothing was asked.
func (q question) ask(args arguments, a *Asked) *asked {
	if a == nil {
		return nil
	}
	i := event.InterruptRequested{
		InterruptID: q.id(), InterruptType: event.InterruptFormInput, AgentID: q.agent,
		Prompt: a.Question.Prompt, Fields: a.Question.Fields,
	}
	body, err := event.InterruptBody(i)
	if err != nil { // it was made of what can be encoded
		return nil
	}
	return &asked{Interrupt: body, Call: args.digest, Params: a.Params, Key: a.Key, State: a.State, interrupt: i}
}

// id of the interrupt, and so the key of the call that brings its answer: one for
// each call that asks, in whatever run.
func (q question) id() string {
	e := q.grant.Envelope()
	sum := sha256.Sum256([]byte(strings.Join([]string{e.BindingID, e.RunID, e.IdempotencyKey}, "\x00")))
	return "input_" + hex.EncodeToString(sum[:16])
}

// continuation is a call that brings the answer to what an earlier one asked.
type continuation struct {
	asked    asked
	decision event.ResumeDecision
	hash     string
}

// continued finds what a request answers; nil where it answers nothing.
//
// A worker could make up an answer, bring one to another question, or show a
// person something else than was asked. So the decision has to be the one that was
// committed when this run was started by it (write 9), on an interrupt of the very
// id and content that the broker gave, for a call of the same tool and arguments.
func (s *Service) continued(ctx context.Context, req Request, r binding.Record, args arguments) (*continuation, error) {
	const op = "toolbroker.continued"
	if req.Answer == nil {
		return nil, nil //nolint:nilnil // most calls answer nothing
	}
	e := req.Grant.Envelope()
	conflict := func(why string) error { return fault.Wrap(errors.New(why), fault.InterruptConflict, op) }
	if r.Run == nil || r.Run.ID != e.RunID || r.Resumed == nil || r.Resumed.RunID != e.RunID {
		return nil, conflict("the run carries no decision")
	}
	a, err := s.question(ctx, req, r)
	if err != nil {
		return nil, err
	}
	c := &continuation{asked: *a, decision: event.ResumeDecision{Form: event.Object(req.Answer.Form), Dismiss: req.Answer.Dismissed}}
	c.hash = c.decision.Hash(r.Run.AskedBy)
	switch {
	case a.Call != args.digest:
		return nil, conflict("another call than the one that asked")
	case e.IdempotencyKey != a.interrupt.InterruptID || r.Resumed.InterruptID != a.interrupt.InterruptID:
		return nil, conflict("another question than the one that was decided on")
	case r.Resumed.InterruptHash != event.InterruptHash(a.Interrupt):
		return nil, conflict("the person was asked something else than the tool asked")
	case r.Resumed.DecisionHash != c.hash:
		return nil, conflict("another decision than the committed one")
	}
	return c, nil
}

// question reads what a call asked out of the ledger.
func (s *Service) question(ctx context.Context, req Request, r binding.Record) (*asked, error) {
	const op = "toolbroker.question"
	for key := range binding.AttemptKeys(req.Answer.Key) {
		row, err := s.cfg.Records.LoadRow(ctx, binding.RowKey{BindingID: r.ID, Epoch: r.Epoch, RunID: req.Answer.AskedBy, Key: key})
		switch {
		case errors.Is(err, binding.ErrNotFound):
			return nil, fault.New(fault.InterruptNotFound, op)
		case err != nil:
			return nil, fault.Wrap(err, fault.DependencyUnavailable, op)
		case row.State != binding.RowConcluded || row.Kind != kind:
			continue
		}
		o, err := decodeOutcome(row.Outcome)
		if err != nil {
			return nil, fault.Wrap(err, fault.Internal, op)
		}
		if o.Asked != nil {
			return o.Asked, nil
		}
	}
	return nil, fault.New(fault.InterruptNotFound, op)
}

// digest tells a call from another one under its key.
func (c *continuation) digest(args arguments) string {
	if c == nil {
		return args.digest
	}
	return args.digest + "+" + c.hash
}

// input is what the tool gets. Where a form does not hold what was asked for,
// nothing can be sent, and the person is asked again.
func (c *continuation) input() (in *Input, again *Reply) {
	if c == nil {
		return nil, nil
	}
	a := Asked{Params: c.asked.Params, Key: c.asked.Key, State: c.asked.State}
	in = &Input{Asked: a, Action: elicit.Cancel}
	if c.decision.Dismiss {
		return in, nil
	}
	// It was cleaned when it was asked; here only its schema counts.
	q, err := elicit.Parse(c.asked.Params, func(s string) string { return s })
	if err == nil {
		in.Action, in.Content, err = q.Answer(json.RawMessage(c.decision.Form))
	}
	if err == nil {
		return in, nil
	}
	why := "The answer could not be used. "
	if e, ok := errors.AsType[*elicit.InvalidError](err); ok {
		why = "The answer could not be used (" + e.Reason + "). "
	}
	_, prompt, cut := strings.Cut(c.asked.interrupt.Prompt, "). ")
	if !cut || !strings.HasPrefix(c.asked.interrupt.Prompt, "The answer could not be used") {
		prompt = c.asked.interrupt.Prompt
	}
	a.Question = elicit.Question{Prompt: event.Truncate(why+prompt, event.MaxPromptBytes), Fields: c.asked.interrupt.Fields}
	return nil, &Reply{Result: project.Failure("The tool asks the user for input once more.", project.Redactor{}), Asked: &a}
}
