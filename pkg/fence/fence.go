// Package fence is the one fencing path: it decides whether a request speaks
// for the committed binding, epoch, generation and run (protocol text,
// "Identity and fencing envelope"; the contract's fencing file).
//
// The check here, at the door, is a courtesy: it answers early and clearly. The
// check that decides is in the write itself, which is why every store method
// that writes within a run takes a Grant and puts its envelope in the filter.
package fence

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/pkg/fault"
)

// ErrUnknownBinding is what a Reader returns for a binding that is not
// committed.
var ErrUnknownBinding = errors.New("fence: unknown binding")

// Committed is what the record of a binding says at one moment.
type Committed struct {
	BindingID  string
	Epoch      uint32
	Generation uint32
	// RunID is empty while no run is active.
	RunID string
	// RunDeadline is when the active run must have ended.
	RunDeadline time.Time
	// Owner is the replica and incarnation that drives the run.
	Owner string
	// Instance is the uid of the leased sandbox instance; empty before it is known.
	Instance string
}

// Reader reads the committed state of a binding, by a majority read where the
// store has replicas. It returns ErrUnknownBinding where there is none.
type Reader interface {
	Committed(ctx context.Context, bindingID string) (Committed, error)
}

// Check compares a presented envelope with committed state. It is pure and
// matches exactly: lower, higher and unknown are all stale. A request for a run
// that is not the active one is stale. An envelope whose own deadline has
// passed is deadline_exceeded.
func Check(c Committed, e Envelope, now time.Time) error {
	if c.RunID == "" || e.RunID != c.RunID {
		return fault.New(fault.StaleLease, "fence.Check")
	}
	if err := CheckLease(c, e, now); err != nil {
		return err
	}
	if !now.Before(c.RunDeadline) {
		return fault.New(fault.DeadlineExceeded, "fence.Check")
	}
	return nil
}

// CheckLease is Check for a call that concerns the lease and no run: the run
// ids are not compared.
func CheckLease(c Committed, e Envelope, now time.Time) error {
	if e.BindingID == "" || e.BindingID != c.BindingID || e.Epoch != c.Epoch || e.Generation != c.Generation || e.Generation == 0 {
		return fault.New(fault.StaleLease, "fence.Check")
	}
	if !now.Before(e.Deadline) {
		return fault.New(fault.DeadlineExceeded, "fence.Check")
	}
	return nil
}
