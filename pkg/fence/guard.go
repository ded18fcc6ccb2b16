package fence

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/fault"
)

// Grant is the proof that an envelope matched committed state. Only a Guard
// makes one; a zero Grant is refused by every store. It says what was true when
// it was made, not what is true now: a write compares again.
type Grant struct {
	env    Envelope
	state  Committed
	sealed bool
}

// Envelope that was admitted; its deadline is never after the run's.
func (g Grant) Envelope() Envelope { return g.env }

// Committed is the state that the envelope matched.
func (g Grant) Committed() Committed { return g.state }

// Validate refuses a Grant that no Guard made.
func (g Grant) Validate() error {
	if !g.sealed {
		return fault.Wrap(errors.New("grant was not made by a guard"), fault.Internal, "fence.Grant")
	}
	return nil
}

// Guard admits envelopes. It is safe for concurrent use.
type Guard struct {
	reader Reader
	now    func() time.Time
}

// NewGuard reads committed state from r. now is time.Now outside of tests.
func NewGuard(r Reader, now func() time.Time) *Guard { return &Guard{reader: r, now: now} }

// Admit checks an envelope that names a run. Errors: stale_lease,
// deadline_exceeded, and dependency_unavailable when the store does not answer.
func (g *Guard) Admit(ctx context.Context, e Envelope) (Grant, error) {
	return g.admit(ctx, e, Check)
}

// AdmitLease checks an envelope for a call that concerns the lease and no run.
func (g *Guard) AdmitLease(ctx context.Context, e Envelope) (Grant, error) {
	return g.admit(ctx, e, CheckLease)
}

func (g *Guard) admit(ctx context.Context, e Envelope, check func(Committed, Envelope, time.Time) error) (Grant, error) {
	c, err := g.reader.Committed(ctx, e.BindingID)
	switch {
	case errors.Is(err, ErrUnknownBinding):
		return Grant{}, fault.New(fault.StaleLease, "fence.Admit")
	case err != nil && ctx.Err() != nil:
		return Grant{}, fault.From(ctx.Err(), "fence.Admit")
	case err != nil:
		return Grant{}, fault.Wrap(err, fault.DependencyUnavailable, "fence.Admit")
	}
	if err := check(c, e, g.now()); err != nil {
		return Grant{}, err
	}
	if e.RunID != "" && c.RunDeadline.Before(e.Deadline) && e.RunID == c.RunID {
		e.Deadline = c.RunDeadline
	}
	return Grant{env: e, state: c, sealed: true}, nil
}
