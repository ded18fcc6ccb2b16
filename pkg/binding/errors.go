package binding

import (
	"context"
	"errors"

	"cofferdam.dev/pkg/fault"
)

// Errors of a Writer that say more than their fault code. All of them arrive
// wrapped in a fault, beside ErrFenced, which is always stale_lease.
var (
	// ErrEnded says that the end of the run is decided, so that it takes no more
	// events from its worker. Its fault is cancelled.
	ErrEnded = errors.New("binding: the end of the run is decided")
	// ErrEndOpen says that the end of the run has to be decided first.
	ErrEndOpen = errors.New("binding: the end of the run is not decided")
	// ErrEndDisagrees says that another end stands than the one that was meant.
	ErrEndDisagrees = errors.New("binding: another end stands")
	// ErrNotRevoked says that an admitted effect has no ledger row yet, so that it
	// could still begin after the terminal.
	ErrNotRevoked = errors.New("binding: an admitted effect has no ledger row")
	// ErrNotConcluded says that a run cannot leave the record yet: its terminal,
	// its chunks or its document are missing.
	ErrNotConcluded = errors.New("binding: the run is not concluded")
)

// What transitions tell the writes around them; none of these gets out.
var (
	errStands     = errors.New("binding: the write stands already")
	errMoved      = errors.New("binding: the revision moved on")
	errTailFull   = errors.New("binding: the tail is full")
	errArchived   = errors.New("binding: the sequence left the tail")
	errBehind     = errors.New("binding: the log does not reach the sequence yet")
	errUnverified = errors.New("binding: the log was not looked at yet")
	errBroken     = errors.New("binding: the parts of a log do not fit")
)

// refusal marks the error of a transition among the errors of a store: a
// decision, after which nothing is repeated.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// decided reports whether err says that nothing was written, for certain.
func decided(err error) bool {
	var r refusal
	return err == nil || errors.As(err, &r) || errors.Is(err, ErrFenced) || errors.Is(err, ErrNotFound)
}

// fail makes the fault that a caller sees. The text says which of the contract's
// answers fits: what does not match is stale_lease, and a store that does not
// answer is dependency_unavailable.
func fail(ctx context.Context, err error, op string) error {
	var safe *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &safe):
		return safe
	case errors.Is(err, ErrFenced):
		return fault.Wrap(err, fault.StaleLease, op)
	case errors.Is(err, ErrNotFound):
		return fault.Wrap(err, fault.NotFound, op)
	case errors.Is(err, ErrEnded):
		return fault.Wrap(err, fault.Cancelled, op)
	case errors.Is(err, ErrEndOpen), errors.Is(err, ErrEndDisagrees), errors.Is(err, ErrNotRevoked), errors.Is(err, ErrNotConcluded), errors.Is(err, errBroken):
		return fault.Wrap(err, fault.Internal, op)
	case ctx.Err() != nil:
		return fault.From(ctx.Err(), op)
	default:
		return fault.Wrap(err, fault.DependencyUnavailable, op)
	}
}

// misuse is the fault of a caller inside this system that passed what can never
// be right.
func misuse(op, what string) error {
	return fault.Wrap(errors.New("binding: "+what), fault.Internal, op)
}
