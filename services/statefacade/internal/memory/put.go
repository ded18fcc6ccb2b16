package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/statefacade/internal/digest"
)

// effectKind of a put in the ledger.
const effectKind = "memory.put"

// putLimit bounds one write to the store.
const putLimit = 10 * time.Second

// Put is a record to store.
type Put struct {
	Scope       Scope
	Key         string
	Kind        Kind
	ContentType string
	Content     []byte
	// Expected revision; nil where the record must not exist yet.
	Expected *uint64
}

// Stored is what a put left.
type Stored struct {
	Revision uint64
	// Replayed says that an earlier request with the same key did it.
	Replayed bool
}

// write is a put on its way through the pipeline.
type write struct {
	caller    Caller
	put       Put
	namespace string
	result    Stored
}

// step is one stage of the write pipeline. It may change the write, or refuse it.
type step func(context.Context, *write) error

// pipeline is the contract's write pipeline, in its order. Comparing the revision
// and storing are one step, because they are one write. Steps that look into the
// content (redaction, what would widen authority, approval) belong between
// validate and admitAndStore.
func (s *Service) pipeline() []step {
	return []step{s.authorize, validate, s.admitAndStore}
}

// Put stores one record where its revision is the expected one, at most once for
// the idempotency key of the grant in its run.
//
// Faults: memory_scope_denied; invalid_request; memory_rejected;
// memory_revision_conflict; idempotency_conflict; capacity; stale_lease and
// cancelled with nothing stored; tool_outcome_unknown where the store did not
// tell, after which the same request settles it.
func (s *Service) Put(ctx context.Context, c Caller, p Put) (Stored, error) {
	w := &write{caller: c, put: p}
	for _, step := range s.pipeline() {
		if err := step(ctx, w); err != nil {
			return Stored{}, err
		}
	}
	return w.result, nil
}

func (s *Service) authorize(ctx context.Context, w *write) (err error) {
	w.namespace, err = s.namespace(ctx, w.caller, w.put.Scope)
	return err
}

// outcome is what the ledger keeps of a put: a revision, or the code of the
// refusal. Both are final for their key.
type outcome struct {
	Revision uint64     `json:"revision,omitempty"`
	Code     fault.Code `json:"code,omitempty"`
}

func (s *Service) admitAndStore(ctx context.Context, w *write) error {
	const op = "memory.Put"
	e := w.caller.Grant.Envelope()
	change := s.change(w)
	done, err := s.effects.Do(ctx, w.caller.Grant, binding.Effect{
		Key: e.IdempotencyKey, Kind: effectKind, ArgsDigest: argsDigest(w),
		Repeatable: true, // the store knows the change by its ID
		Limit:      putLimit,
	}, func(ctx context.Context) ([]byte, error) { return s.act(ctx, change) })
	if err != nil {
		return err
	}
	var o outcome
	if err := json.Unmarshal(done.Body, &o); err != nil {
		return fault.Wrap(fmt.Errorf("stored outcome: %w", err), fault.Internal, op)
	}
	if o.Code != "" {
		return fault.New(o.Code, op)
	}
	w.result = Stored{Revision: o.Revision, Replayed: done.Replayed}
	return nil
}

// act is the effect itself. It ends within the window in which it may begin, so
// that nothing happens after the run was concluded without it.
func (s *Service) act(ctx context.Context, c Change) ([]byte, error) {
	if by, ok := binding.BeginBy(ctx); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	var o outcome
	var err error
	switch o.Revision, err = s.store.Put(ctx, c, MaxRecords); {
	case errors.Is(err, ErrRevision):
		o = outcome{Code: fault.MemoryRevisionConflict}
	case errors.Is(err, ErrFull):
		o = outcome{Code: fault.Capacity}
	case err != nil:
		return nil, err
	}
	return json.Marshal(o)
}

func (s *Service) change(w *write) Change {
	e := w.caller.Grant.Envelope()
	c := Change{
		ID:        digest.Of(e.BindingID, strconv.FormatUint(uint64(e.Epoch), 10), e.RunID, e.IdempotencyKey),
		Namespace: w.namespace,
		Record: Record{
			Key: w.put.Key, Kind: w.put.Kind, ContentType: w.put.ContentType, Content: w.put.Content,
			SHA256: sha256.Sum256(w.put.Content), UpdatedAt: s.now().UTC(),
			Origin: Origin{BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID, Writer: w.caller.ID.String()},
		},
	}
	if w.put.Expected != nil {
		c.Expected = *w.put.Expected
	}
	return c
}

// argsDigest tells this put from another one under the same key.
func argsDigest(w *write) string {
	p := w.put
	expected := "absent"
	if p.Expected != nil {
		expected = strconv.FormatUint(*p.Expected, 10)
	}
	sum := sha256.Sum256(p.Content)
	return digest.Of(effectKind, w.namespace, p.Key, string(p.Kind), p.ContentType, hex.EncodeToString(sum[:]), expected)
}
