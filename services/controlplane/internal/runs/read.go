package runs

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

const (
	// pollEvery bounds how late a follower learns of what another replica wrote, and
	// pollDriven how late of a run that this replica believes to drive, whose driver
	// finds out by its beat.
	pollEvery  = 250 * time.Millisecond
	pollDriven = 2 * time.Second
	// followPage is how many events a follower reads at once.
	followPage = 256
)

// ErrBehind is what a follower gets that may not fall behind, and has.
var ErrBehind = errors.New("runs: reader is too far behind")

// find gives a run that belongs to the caller: the record while it is active or
// ending, and its document afterwards. Another caller's run is not_found.
func (s *Service) find(ctx context.Context, caller Caller, runID string) (binding.Record, *binding.RunDocument, error) {
	store := s.cfg.Writer.Backend()
	id, err := store.FindRun(ctx, runID)
	var doc *binding.RunDocument
	if errors.Is(err, binding.ErrNotFound) {
		// Between the two reads a run may move from the record to its document,
		// never back: what is in neither is not there.
		var d binding.RunDocument
		if d, err = store.LoadRun(ctx, runID); err == nil {
			id, doc = d.BindingID, &d
		}
	}
	if errors.Is(err, binding.ErrNotFound) {
		return binding.Record{}, nil, fault.New(fault.NotFound, "runs.find")
	}
	if err != nil {
		return binding.Record{}, nil, fault.Wrap(err, fault.DependencyUnavailable, "runs.find")
	}
	rec, err := store.Load(ctx, id)
	if err != nil {
		return rec, nil, fault.Wrap(err, fault.DependencyUnavailable, "runs.find")
	}
	if rec.Identity.Subject != caller.Subject || rec.Identity.Organization != caller.Organization {
		return binding.Record{}, nil, fault.New(fault.NotFound, "runs.find")
	}
	if doc == nil && !holds(rec, runID) {
		return s.find(ctx, caller, runID) // it was concluded between the reads
	}
	return rec, doc, nil
}

func holds(rec binding.Record, runID string) bool {
	if rec.Run != nil && rec.Run.ID == runID {
		return true
	}
	for _, e := range rec.Ending {
		if e.Run != nil && e.Run.ID == runID {
			return true
		}
	}
	return false
}

// Status is what is known of a run.
type Status struct {
	RunID          string
	BindingID      string
	Epoch          uint32
	Generation     uint32
	ConversationID string
	AgentID        string
	// State is running, ending or ended.
	State string
	// End is how the run ends or ended; empty while nothing is decided.
	End       string
	EndReason string
	// Events is how many are committed.
	Events uint64
	// AskedBy is the run whose interrupt this one resumes, and Carried are the calls
	// that it did not have to start.
	AskedBy string
	Carried []event.Carried
	// AwaitsStream: the first stream of the run can be taken.
	AwaitsStream bool
	// Terminal is the canonical terminal event, once there is one.
	Terminal json.RawMessage
	// DurableRevision of the conversation's thread state.
	DurableRevision uint64
	SideEffects     string
	StartedAt       time.Time
	Deadline        time.Time
	EndedAt         time.Time

	forgotten bool
}

// EventsKept is not_found where the events of the run are not kept any more.
func (st Status) EventsKept() error {
	if st.forgotten {
		return binding.Forgotten("runs.EventsKept")
	}
	return nil
}

// Status of a run of the caller. Errors: not_found.
func (s *Service) Status(ctx context.Context, caller Caller, runID string) (Status, error) {
	rec, doc, err := s.find(ctx, caller, runID)
	if err != nil {
		return Status{}, err
	}
	out := Status{
		RunID: runID, BindingID: rec.ID, Epoch: rec.Epoch, Generation: rec.Generation,
		ConversationID: rec.Identity.ConversationID, AgentID: rec.Identity.AgentID, DurableRevision: rec.Head.Revision,
	}
	if doc != nil {
		out.State, out.End, out.EndReason = "ended", string(doc.End.Kind), doc.End.Reason
		out.Epoch, out.Generation, out.Events, out.Terminal = doc.Epoch, doc.Generation, doc.Events, doc.Terminal
		out.DurableRevision, out.SideEffects = doc.HeadRevision, doc.SideEffects
		out.StartedAt, out.EndedAt = doc.StartedAt, doc.EndedAt
		out.AskedBy, out.Carried = doc.AskedBy, carriedCalls(doc.Carried)
		out.forgotten = doc.Forgotten
		return out, nil
	}
	run := rec.Run
	out.State = "running"
	for _, e := range rec.Ending {
		if e.Run != nil && e.Run.ID == runID {
			run, out.State, out.Epoch, out.Generation = e.Run, "ending", e.Epoch, e.Generation
			if tail := run.Tail; e.Terminal && len(tail) > 0 {
				events := tail[len(tail)-1].Events
				out.Terminal = events[len(events)-1]
			}
		}
	}
	out.End, out.EndReason, out.Events = string(run.End.Kind), run.End.Reason, run.EventHead
	out.AwaitsStream = out.State == "running" && run.AwaitsStream && run.StreamNonce == ""
	out.StartedAt, out.Deadline = run.StartedAt, run.Deadline
	out.AskedBy, out.Carried = run.AskedBy, carriedCalls(run.Carried)
	return out, nil
}

// Page is a part of a committed log.
type Page struct {
	Events []json.RawMessage
	// Next is the sequence to go on from.
	Next uint64
	// Ended is true when the last event of the run is in or before this page.
	Ended bool
}

// Events reads committed events of a run of the caller from a sequence on.
func (s *Service) Events(ctx context.Context, caller Caller, runID string, from uint64, limit int) (Page, error) {
	rec, _, err := s.find(ctx, caller, runID)
	if err != nil {
		return Page{}, err
	}
	p, err := s.cfg.Writer.Events(ctx, rec.ID, runID, from, limit)
	if err != nil {
		return Page{}, fault.From(err, "runs.Events")
	}
	return Page{Events: p.Events, Next: p.Next, Ended: p.Ended}, nil
}

// FollowOptions of one reader.
type FollowOptions struct {
	// From is the first sequence that is wanted.
	From uint64
	// MaxBehind ends the reader with ErrBehind when more bytes are committed than
	// it has taken; 0 lets it fall behind as far as it likes.
	MaxBehind uint64
	// MaxLag ends the reader with ErrBehind when it has been behind for so long;
	// 0 lets it. Both count from the first event: use them with From 0.
	MaxLag time.Duration
	// Interrupt is called from another goroutine, at most once and not after Follow
	// has returned, when the reader gets too far behind while it keeps yield
	// waiting; it must make yield return. nil waits for yield.
	Interrupt func()
	// Flush is called after some events were given, before more are waited for; its
	// error ends the reader. It may be nil.
	Flush func() error
	// Idle is called every IdleEvery while there is nothing to give; its error
	// ends the reader. It may be nil.
	Idle      func() error
	IdleEvery time.Duration
}

// Follow gives the committed events of a run, in order and once each, until the
// terminal; then it returns nil. A slow reader reads the log at its own pace:
// nothing is kept for it. yield's error ends it.
func (s *Service) Follow(ctx context.Context, caller Caller, runID string, o FollowOptions, yield func(sequence uint64, raw json.RawMessage) error) error {
	rec, _, err := s.find(ctx, caller, runID)
	if err != nil {
		return err
	}
	lag := &lag{of: o, since: time.Now()}
	defer s.watchLag(ctx, rec.ID, runID, lag)()
	quiet, poll := time.Now(), false
	for from := o.From; ; {
		changed, _ := s.hub.watch(runID)
		page, err := s.next(ctx, rec.ID, runID, from, poll)
		if err != nil {
			return fault.From(err, "runs.Follow")
		}
		lag.read(page.Events)
		for i, raw := range page.Events {
			err := yield(page.First+uint64(i), raw)
			lag.take(len(raw))
			if _, committed := s.hub.watch(runID); lag.tooFar(committed, time.Now()) {
				return ErrBehind
			}
			if err != nil {
				return err
			}
		}
		if o.Flush != nil && len(page.Events) > 0 {
			if err := o.Flush(); err != nil {
				return err
			}
		}
		if page.Ended {
			return nil
		}
		if len(page.Events) > 0 {
			from, quiet, poll = page.Next, time.Now(), false
			continue
		}
		if o.Idle != nil && time.Since(quiet) >= o.IdleEvery {
			if err := o.Idle(); err != nil {
				return err
			}
			quiet = time.Now()
		}
		if poll, err = s.await(ctx, changed, o); err != nil {
			return err
		}
	}
}

// next gives a page from a sequence on: of what this replica has committed last where
// the reader keeps up, and with stored, or where it does not, of the committed log.
func (s *Service) next(ctx context.Context, bindingID, runID string, from uint64, stored bool) (binding.Page, error) {
	if !stored {
		if events, ok := s.hub.recent(runID, from, followPage); ok {
			return binding.Page{Events: events, First: from, Next: from + uint64(len(events))}, nil
		}
	}
	return s.cfg.Writer.Events(ctx, bindingID, runID, from, followPage)
}

// await waits for a change, but not for ever: poll says that it was not told of one.
func (s *Service) await(ctx context.Context, changed <-chan struct{}, o FollowOptions) (poll bool, err error) {
	wait := pollEvery
	if changed != nil {
		wait = pollDriven
	}
	if o.Idle != nil {
		wait = min(wait, max(o.IdleEvery, time.Millisecond))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, fault.From(ctx.Err(), "runs.Follow")
	case <-changed:
		return false, nil
	case <-timer.C:
		return true, nil
	}
}
