package runs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// replayPage is how many events are read at once when a log is replayed.
const replayPage = 512

// logOf reads the committed log of a run, event by event.
func (s *Service) logOf(ctx context.Context, bindingID, runID string) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for from := uint64(0); ; {
			page, err := s.cfg.Writer.Events(ctx, bindingID, runID, from, replayPage)
			if err != nil {
				yield(event.Event{}, err)
				return
			}
			for _, raw := range page.Events {
				var e event.Event
				err := json.Unmarshal(raw, &e)
				if !yield(e, err) || err != nil {
					return
				}
			}
			if len(page.Events) == 0 || page.Ended {
				return
			}
			from = page.Next
		}
	}
}

// closing gives the events that close a run, its terminal last. The terminal
// follows from how the run ends as committed, never from what a worker said;
// stopReason is the one thing that only a worker knows. m has the run as far as it is
// committed, and is used up; nil has the log read.
func (s *Service) closing(ctx context.Context, rec binding.Record, run binding.Run, sideEffects, stopReason string, m *event.Machine) (binding.Batch, error) {
	var replayed error
	if m == nil {
		m = s.machine(rec, run.ID, run.Carried)
		replayed = m.Replay(s.logOf(ctx, rec.ID, run.ID))
	}
	if f := fault.From(replayed, "runs.closing"); f != nil && (f.Code() == fault.DependencyUnavailable || ctx.Err() != nil) {
		return binding.Batch{}, f // the store will answer later
	}
	end, err := terminalOf(m, rec, run, event.SideEffectStatus(sideEffects), stopReason)
	if err != nil {
		// What the worker had committed does not follow from what it sent. Nobody was
		// asked anything that could be answered, and its run must not stay for ever.
		s.cfg.Logger.ErrorContext(ctx, "a run ends otherwise than its log tells", "error", err.Error())
		if i := rec.Interrupt; i != nil && i.RunID == run.ID {
			if err := s.cfg.Writer.ExpireInterrupt(ctx, rec.ID, i.ID, i.Revision); err != nil {
				return binding.Batch{}, err
			}
		}
		end = runError(fault.Protocol, event.SideEffectStatus(sideEffects))
	}
	started := event.RunStarted{HarnessID: rec.Identity.HarnessID, AdapterVersion: rec.Identity.AdapterVersion}
	events, err := s.close(m, started, end)
	if err = errors.Join(replayed, err); err != nil {
		// A log that its own rules refuse must not keep its run for ever: it gets
		// the terminal that tells how it ended, and nothing else.
		s.cfg.Logger.ErrorContext(ctx, "a committed log does not replay; it is ended by its terminal alone", "error", err.Error())
		events = []event.Event{event.Draft{Data: end}.Event(run.ID, rec.Identity.ConversationID, run.EventHead, s.cfg.Now().UTC())}
	}
	return batchOf(events)
}

func batchOf(events []event.Event) (binding.Batch, error) {
	b := binding.Batch{Nonce: rand.Text(), First: events[0].Sequence}
	for _, e := range events {
		raw, err := encode(e)
		if err != nil {
			return b, err
		}
		b.Events = append(b.Events, raw)
	}
	return b, nil
}

func (s *Service) close(m *event.Machine, started event.RunStarted, end event.Data) ([]event.Event, error) {
	at := s.cfg.Now().UTC()
	switch end.(type) {
	case event.RunError, event.RunCancelled:
		return m.Close(at, started, end)
	}
	var events []event.Event
	for _, d := range append(m.Closers(end), event.Draft{Data: end}) {
		e := m.Stamp(d, at)
		if err := m.Accept(e); err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// unknownStopReason stands where the worker was gone before it said why the
// model stopped.
const unknownStopReason = "unknown"

func terminalOf(m *event.Machine, rec binding.Record, run binding.Run, effects event.SideEffectStatus, stopReason string) (event.Data, error) {
	switch run.End.Kind {
	case binding.EndSuccess:
		if stopReason == "" {
			stopReason = unknownStopReason
		}
		state := event.ThreadState{Durability: event.DurabilityNone}
		if rec.Head.RunID == run.ID {
			state = event.ThreadState{Durability: event.DurabilityCommitted, DurableRevision: &rec.Head.Revision, HeadRef: &rec.Head.SnapshotRef}
		}
		return event.RunFinished{StopReason: stopReason, ThreadState: &state}, nil
	case binding.EndInterrupted:
		requested, ok := m.Interrupt()
		if !ok || !isCommitted(requested, rec, run) {
			return nil, fault.Wrap(errors.New("run ends as interrupted without that interrupt"), fault.Protocol, "runs.terminal")
		}
		return event.RunInterrupted{InterruptID: requested.InterruptID, Reason: requested.InterruptType.Reason()}, nil
	case binding.EndCancelling:
		return event.RunCancelled{Reason: event.CancelReason(run.End.Reason), SideEffectStatus: effects}, nil
	case binding.EndError:
		e := runError(fault.Code(run.End.Reason), effects)
		if s := uint64(run.End.RetryAfterSeconds); s > 0 {
			e.RetryAfterSeconds = &s
		}
		return e, nil
	case binding.EndLost:
		return runError(fault.ControlPlaneLost, effects), nil
	case binding.EndOpen:
	}
	return nil, fault.Wrap(fmt.Errorf("run ends as %q", run.End.Kind), fault.Internal, "runs.terminal")
}

// runError has the fixed sentence of its code and nothing of what a worker or
// provider said.
func runError(code fault.Code, effects event.SideEffectStatus) event.RunError {
	if !code.Known() {
		code = fault.Internal
	}
	return event.RunError{Code: string(code), Message: code.Message(), Retryable: code.Retryable(), SideEffectStatus: effects}
}

// isCommitted compares a question with the one that the record has of this run.
// One that was answered or has expired since is in the record no more.
func isCommitted(i event.InterruptRequested, rec binding.Record, run binding.Run) bool {
	c := rec.Interrupt
	if c == nil || c.RunID != run.ID {
		return true
	}
	body, err := event.InterruptBody(i)
	return err == nil && c.ID == i.InterruptID && c.Hash == event.InterruptHash(body)
}
