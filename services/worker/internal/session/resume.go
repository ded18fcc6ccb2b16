package session

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/worker/internal/harness"
)

// Resume begins the run that carries a decision out, or gives the terminal of one
// that has ended: everything that is said of Start. The run's id follows from the
// interrupt, so the same decision again is that run, and another one is a
// conflict.
//
// The decision is checked against the interrupt that came with it, and that
// against the pending one as far as the worker knows it: the committed record has
// decided already, and the worker refuses what cannot be right.
//
// Errors besides those of Start: interrupt_conflict for another decision on the
// same interrupt, another revision or another body; interrupt_not_found for one
// that is not pending; tool_arguments_invalid for edited arguments that do not
// fit; invalid_request for any other decision that does not fit the interrupt.
func (s *Session) Resume(ctx context.Context, env fence.Envelope, d harness.Decision, tokens []Token) (*Run, error) {
	d, hash, err := fit(d)
	if err != nil {
		return nil, err
	}
	digest, err := decisionDigest(d)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := task{
		env: env, conversationID: d.ConversationID, digest: digest, conflict: fault.InterruptConflict, tokens: tokens, carried: carried(d),
	}
	if again, err := s.startable(ctx, t); again != nil || err != nil {
		return again, err
	}
	if err := s.checkArguments(d); err != nil {
		return nil, err
	}
	asked := Interrupt{ID: d.Interrupt.InterruptID, Type: d.Interrupt.InterruptType, Revision: d.Revision}
	if err := s.pending.answer(asked, hash); err != nil {
		return nil, err
	}
	t.begun = s.begun(d)
	runtime := s.built.runtime
	r, err := s.begin(ctx, t, func(ctx context.Context, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
		return runtime.Resume(ctx, d, f, emit)
	})
	if err == nil {
		s.pending.take(asked)
	}
	return r, err
}

// fit checks a decision against its interrupt and gives it in the one form that
// all repeats of it have, with the hash of the interrupt's body.
func fit(d harness.Decision) (_ harness.Decision, hash [sha256.Size]byte, err error) {
	const op = "session.Resume"
	body, err := event.InterruptBody(d.Interrupt)
	if err == nil {
		_, err = event.DecodeInterrupt(body, event.Bounds{})
	}
	if err != nil {
		return d, hash, fault.Wrap(err, fault.InvalidRequest, op, fault.Detail("interrupt: not the payload of interrupt.requested"))
	}
	for i, id := range d.Carried {
		named := slices.ContainsFunc(d.Interrupt.ToolApprovals, func(a event.ToolApproval) bool { return a.ToolCallID == id })
		if named || !event.ValidID(id) || slices.Contains(d.Carried[:i], id) || i >= event.MaxOpenTools {
			return d, hash, fault.New(fault.InvalidRequest, op, fault.Detail("carried_calls: other calls than those that the interrupt names, each once"))
		}
	}
	given := event.ResumeDecision{Form: event.Object(d.Form), Dismiss: d.Dismissed}
	for _, t := range d.Tools {
		given.Tools = append(given.Tools, event.ToolDecision{ToolCallID: t.ToolCallID, Decision: t.Decision, Arguments: event.Object(t.Arguments)})
	}
	normal, err := given.Normal(d.Interrupt)
	if err != nil {
		return d, hash, refusedDecision(err)
	}
	d.Form, d.Tools = text(normal.Form), nil
	for _, t := range normal.Tools {
		d.Tools = append(d.Tools, harness.ToolDecision{ToolCallID: t.ToolCallID, Decision: t.Decision, Arguments: text(t.Arguments)})
	}
	return d, sha256.Sum256(body), nil
}

// text of an object; nil for one that is absent.
func text(o event.Object) json.RawMessage {
	if o == "" {
		return nil
	}
	return json.RawMessage(o)
}

func refusedDecision(err error) error {
	detail := "decision: does not fit the interrupt"
	if v, ok := errors.AsType[*event.ViolationError](err); ok {
		detail = v.Field + ": " + v.Reason
	}
	return fault.Wrap(err, fault.InvalidRequest, "session.Resume", fault.Detail(detail))
}

// checkArguments checks edited arguments by the schema of their tool, as those of
// a model are. A tool that the harness has itself has no schema here, so its
// arguments cannot be edited. The caller holds the lock.
func (s *Session) checkArguments(d harness.Decision) error {
	const op = "session.Resume"
	for i, t := range d.Tools {
		if t.Decision != event.DecisionEdit {
			continue
		}
		// The decisions stand in the order of the interrupt.
		schema, ok := s.built.schemas[d.Interrupt.ToolApprovals[i].ToolName]
		if !ok {
			return fault.New(fault.ToolArgumentsInvalid, op, fault.Detail("decision.tools[].arguments: those of this tool cannot be edited"))
		}
		if err := schema.CheckText(t.Arguments); err != nil {
			return fault.Wrap(err, fault.ToolArgumentsInvalid, op, fault.Detail("decision.tools[]."+err.Error()))
		}
	}
	return nil
}

// carried are the calls that count as started in the run.
func carried(d harness.Decision) []event.Carried {
	var out []event.Carried
	for _, id := range d.Carried { // what delegates was opened before
		out = append(out, event.Carried{ToolCallID: id})
	}
	for i, a := range d.Interrupt.ToolApprovals {
		c := event.Carried{ToolCallID: a.ToolCallID, Decision: event.DecisionReject}
		if !d.Dismissed {
			c.Decision = d.Tools[i].Decision
		}
		out = append(out, c)
	}
	return out
}

// begun are the calls that may be made from the first moment of the run without
// anything that tells of it: those of tools that the harness has itself.
func (s *Session) begun(d harness.Decision) []string {
	var out []string
	for i, a := range d.Interrupt.ToolApprovals {
		if _, brokered := s.built.schemas[a.ToolName]; !brokered && !d.Dismissed && d.Tools[i].Decision != event.DecisionReject {
			out = append(out, a.ToolCallID)
		}
	}
	return out
}

// decisionDigest tells the same decision from another one. A repeat may have
// another deadline, and other handles for uploads.
func decisionDigest(d harness.Decision) ([sha256.Size]byte, error) {
	raw, err := json.Marshal(struct {
		InterruptID string
		Revision    uint64
		Form        json.RawMessage
		Dismissed   bool
		Tools       []harness.ToolDecision
	}{d.Interrupt.InterruptID, d.Revision, d.Form, d.Dismissed, d.Tools})
	if err != nil {
		return [sha256.Size]byte{}, fault.Wrap(err, fault.InvalidRequest, "session.Resume")
	}
	return sha256.Sum256(raw), nil
}
