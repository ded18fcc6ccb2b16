package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/statefacade/internal/digest"
)

// changeLimit bounds one write to the store.
const changeLimit = 10 * time.Second

// Stored is what a change left.
type Stored struct {
	Revision uint64
	// Redactions is how many secrets were cut out of the content.
	Redactions int
	// Replayed says that an earlier request with the same key did it.
	Replayed bool
}

// outcome is what the ledger keeps of a change: a revision, or the code of the
// refusal. Both are final for their key.
type outcome struct {
	Revision   uint64     `json:"revision,omitempty"`
	Redactions int        `json:"redactions,omitempty"`
	Code       fault.Code `json:"code,omitempty"`
}

// effect is a change on its way to the ledger.
type effect struct {
	kind string // in the ledger
	// tool and arguments are those of the harness's tool for it: what a person was
	// shown and has approved.
	tool      string
	arguments map[string]any
	// call is the tool call's id; empty where the worker named none.
	call          string
	needsApproval bool
	change        Change
}

// do lets the change happen, at most once for the idempotency key of the grant in
// its run, and where it needs one only with a person's approval of this very
// change.
func (s *Service) do(ctx context.Context, c Caller, f effect) (Stored, error) {
	const op = "memory.change"
	e := c.Grant.Envelope()
	switch {
	case f.call != "" && e.IdempotencyKey != fence.CallKey(fence.MemoryCalls, f.call):
		return Stored{}, fault.New(fault.InvalidRequest, op, fault.Detail("tool_call_id: the idempotency key is not the one that follows from it"))
	case f.call == "" && f.needsApproval:
		return Stored{}, fault.New(fault.ApprovalRequired, op, fault.SideEffects(binding.SideEffectsNone))
	}
	shown, err := json.Marshal(f.arguments) // which is the canonical form
	if err != nil {
		return Stored{}, fault.Wrap(err, fault.Internal, op)
	}
	if f.needsApproval {
		f.change.Record.Origin.ApprovedCall = f.call
	}
	done, err := s.cfg.Effects.Do(ctx, c.Grant, binding.Effect{
		Key: e.IdempotencyKey, CallID: f.call, Kind: f.kind, ArgsDigest: binding.ToolCallDigest(f.tool, shown),
		NeedsGrant: f.needsApproval,
		Repeatable: true, // the store knows the change by its ID
		Stored:     true,
		Limit:      changeLimit,
	}, func(ctx context.Context) ([]byte, error) { return s.act(ctx, f.change) })
	if err != nil {
		return Stored{}, err
	}
	var o outcome
	if err := json.Unmarshal(done.Body, &o); err != nil {
		return Stored{}, fault.Wrap(fmt.Errorf("stored outcome: %w", err), fault.Internal, op)
	}
	if o.Code != "" {
		return Stored{}, fault.New(o.Code, op)
	}
	return Stored{Revision: o.Revision, Redactions: o.Redactions, Replayed: done.Replayed}, nil
}

// act is the effect itself. It ends within the window in which it may begin, so
// that nothing happens after the run was concluded without it.
func (s *Service) act(ctx context.Context, c Change) ([]byte, error) {
	if by, ok := binding.BeginBy(ctx); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	o := outcome{Redactions: c.Record.Redactions}
	var err error
	switch o.Revision, err = s.cfg.Store.Change(ctx, c, MaxRecords); {
	case errors.Is(err, ErrRevision), errors.Is(err, ErrSource):
		o = outcome{Code: fault.MemoryRevisionConflict}
	case errors.Is(err, ErrNotFound):
		o = outcome{Code: fault.NotFound}
	case errors.Is(err, ErrFull):
		o = outcome{Code: fault.Capacity}
	case err != nil:
		return nil, err
	}
	return json.Marshal(o)
}

// begun is a change of one record by a run.
func (s *Service) begun(c Caller, namespace, key string, operation Operation, expected uint64) Change {
	e := c.Grant.Envelope()
	return Change{
		ID:        digest.Of(e.BindingID, strconv.FormatUint(uint64(e.Epoch), 10), e.RunID, e.IdempotencyKey),
		Operation: operation, Namespace: namespace, Expected: expected,
		Record: Record{Key: key, UpdatedAt: s.cfg.Now().UTC(), Origin: Origin{
			BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID, Writer: c.ID.String(),
		}},
	}
}

// standing is the kind of the record that a change is about to replace: what
// revision it is fixes its kind. The store refuses the change where another kind
// stands, so nothing is replaced whose kind was not looked at.
func (s *Service) standing(ctx context.Context, c *Change) error {
	if c.Expected == 0 {
		return nil
	}
	r, err := s.cfg.Store.Get(ctx, c.Namespace, c.Record.Key, s.cfg.Now())
	switch {
	case errors.Is(err, ErrNotFound), err == nil && r.Revision != c.Expected:
		return nil // the store will refuse it
	case err != nil:
		return failed(ctx, err, fault.PersistenceFailed, "memory.change")
	}
	c.Replaces = r.Kind
	return nil
}
