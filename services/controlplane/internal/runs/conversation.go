package runs

import (
	"context"
	"encoding/json"
	"errors"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// conversation is the record of a caller's conversation with an agent; an empty
// one before its first run.
func (s *Service) conversation(ctx context.Context, caller Caller, agentID, conversationID string) (binding.Record, error) {
	id := s.cfg.IDs.BindingID(binding.Identity{
		Environment: s.cfg.Environment, Subject: caller.Subject, Organization: caller.Organization,
		AgentID: agentID, ConversationID: conversationID,
	})
	rec, err := s.cfg.Writer.Backend().Load(ctx, id)
	if errors.Is(err, binding.ErrNotFound) {
		return binding.Record{}, nil
	}
	if err != nil {
		return binding.Record{}, fault.Wrap(err, fault.DependencyUnavailable, "runs.conversation")
	}
	return rec, nil
}

// ActiveRun is the run that is under way in the caller's conversation, "" for
// none.
func (s *Service) ActiveRun(ctx context.Context, caller Caller, agentID, conversationID string) (string, error) {
	rec, err := s.conversation(ctx, caller, agentID, conversationID)
	switch e := rec.EndingRun(); {
	case err != nil:
		return "", err
	case rec.Run != nil:
		return rec.Run.ID, nil
	case e != nil:
		return e.Run.ID, nil
	default:
		return "", nil
	}
}

// PendingInterrupt is what a conversation waits for.
type PendingInterrupt struct {
	RunID    string
	Revision uint64
	// Interrupt as it stands in the log.
	Interrupt event.InterruptRequested
}

// PendingInterrupt gives the interrupt that the caller's conversation waits for,
// or nil. A conversation that there is not waits for nothing.
func (s *Service) PendingInterrupt(ctx context.Context, caller Caller, agentID, conversationID string) (*PendingInterrupt, error) {
	rec, err := s.conversation(ctx, caller, agentID, conversationID)
	if err != nil || rec.Interrupt == nil {
		return nil, err
	}
	question, err := s.question(ctx, rec)
	if err != nil || question == nil {
		return nil, err
	}
	return &PendingInterrupt{RunID: rec.Interrupt.RunID, Revision: rec.Interrupt.Revision, Interrupt: *question}, nil
}

// Interrupt gives an interrupt of the caller's conversation by its id: the one
// that waits, or the last one that was answered, so that an answer can be sent
// again. Errors: interrupt_not_found.
func (s *Service) Interrupt(ctx context.Context, caller Caller, agentID, conversationID, interruptID string) (PendingInterrupt, error) {
	const op = "runs.Interrupt"
	rec, err := s.conversation(ctx, caller, agentID, conversationID)
	if err != nil {
		return PendingInterrupt{}, err
	}
	var out PendingInterrupt
	switch i, answered := rec.Interrupt, rec.Resumed; {
	case i != nil && i.ID == interruptID:
		out.RunID, out.Revision = i.RunID, i.Revision
	case answered != nil && answered.InterruptID == interruptID:
		status, err := s.Status(ctx, caller, answered.RunID)
		if err != nil {
			return PendingInterrupt{}, err
		}
		out.RunID, out.Revision = status.AskedBy, answered.Revision
	default:
		return PendingInterrupt{}, fault.New(fault.InterruptNotFound, op)
	}
	a, err := s.asked(ctx, rec, out.RunID)
	if err != nil {
		return PendingInterrupt{}, err
	}
	out.Interrupt = a.InterruptRequested
	return out, nil
}

// questionPage is how much of the end of a log is read for the interrupt in it:
// what may stand behind it, and a little more.
const questionPage = 256

// question reads the pending interrupt from the end of its log; nil while its run
// has not ended, so that nobody was asked.
func (s *Service) question(ctx context.Context, rec binding.Record) (*event.InterruptRequested, error) {
	const op = "runs.question"
	doc, err := s.cfg.Writer.Backend().LoadRun(ctx, rec.Interrupt.RunID)
	switch {
	case errors.Is(err, binding.ErrNotFound):
		return s.freshQuestion(ctx, rec)
	case err != nil:
		return nil, fault.Wrap(err, fault.DependencyUnavailable, op)
	}
	page, err := s.cfg.Writer.Events(ctx, rec.ID, doc.RunID, doc.Events-min(doc.Events, questionPage), questionPage)
	if err != nil {
		return nil, fault.From(err, op)
	}
	for _, raw := range page.Events {
		var e event.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, fault.Wrap(err, fault.Internal, op)
		}
		if i, ok := e.Data.(event.InterruptRequested); ok && i.InterruptID == rec.Interrupt.ID {
			return &i, nil
		}
	}
	return nil, nil //nolint:nilnil // its run ended otherwise than it asked
}

// freshQuestion is the question of a run that is being concluded: whoever read
// its run.interrupted may ask at once, before there is a document of the run.
func (s *Service) freshQuestion(ctx context.Context, rec binding.Record) (*event.InterruptRequested, error) {
	a, err := s.asked(ctx, rec, rec.Interrupt.RunID)
	switch {
	case fault.Is(err, fault.InterruptNotFound):
		return nil, nil //nolint:nilnil // it has not ended, so that nobody was asked
	case err != nil:
		return nil, err
	}
	return &a.InterruptRequested, nil
}
