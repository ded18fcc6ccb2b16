package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
)

const (
	// effectKind of a completed upload in the ledger.
	effectKind = "file.upload"
	// completeLimit bounds the write that makes an upload visible.
	completeLimit = 10 * time.Second
)

// Uploaded is a completed upload.
type Uploaded struct {
	ObjectID string
	// Replayed says that an earlier request with the same key completed it.
	Replayed bool
}

// outcome is what the ledger keeps of an upload: the object, or the code of the
// refusal.
type outcome struct {
	ObjectID string     `json:"object_id,omitempty"`
	Code     fault.Code `json:"code,omitempty"`
}

// Upload stores one whole object through an upload handle. It becomes visible
// when all of it is there and its SHA-256 is the announced one; the handle is
// used up by that.
//
// Faults: those of a handle; handle_denied also for a handle that another request
// has used up; request_too_large; invalid_request where size or digest are not
// the content's; capacity where the binding has no room; idempotency_conflict;
// stale_lease and cancelled with nothing visible; persistence_failed;
// tool_outcome_unknown, after which the same request settles it.
func (s *Service) Upload(ctx context.Context, c Caller, handle string, info Info, parts blob.Parts) (Uploaded, error) {
	h, err := s.authorize(ctx, c, handle, DirectionUpload)
	if err != nil {
		return Uploaded{}, err
	}
	if info, err = h.takes(info); err != nil {
		return Uploaded{}, err
	}
	ctx, cancel := context.WithDeadlineCause(ctx, h.ExpiresAt, context.DeadlineExceeded)
	defer cancel()
	e := c.Grant.Envelope()
	done := Completion{Slot: h.ID, Key: e.IdempotencyKey, ArgsDigest: info.argsDigest("upload:" + h.ID)}
	switch stands, err := s.catalogue.Completed(ctx, h.ID); {
	case err == nil && stands.Key != done.Key:
		return Uploaded{}, fault.New(fault.HandleDenied, "files.Upload")
	case err == nil: // the ledger, or the slot, has the answer; the content is only checked
		if err := receive(ctx, io.Discard, info, parts); err != nil {
			return Uploaded{}, err
		}
		return s.complete(ctx, c, done)
	case !errors.Is(err, ErrNoCompletion):
		return Uploaded{}, failed(ctx, err, "files.Upload")
	}
	st, err := s.stage(ctx, e, info, parts, (*sniffer).confirm)
	if err != nil {
		return Uploaded{}, err
	}
	done.ObjectID = st.object.ID
	up, err := s.complete(ctx, c, done)
	if err != nil || up.ObjectID != st.object.ID {
		st.drop(ctx) // unless it became visible, with an outcome that got lost
	}
	return up, err
}

// complete is the admitted effect.
func (s *Service) complete(ctx context.Context, c Caller, done Completion) (Uploaded, error) {
	const op = "files.complete"
	res, err := s.effects.Do(ctx, c.Grant, binding.Effect{
		Key: done.Key, Kind: effectKind, ArgsDigest: done.ArgsDigest,
		Repeatable: true, // the slot is taken once
		Stored:     true,
		Limit:      completeLimit,
	}, func(ctx context.Context) ([]byte, error) { return s.act(ctx, done) })
	if err != nil {
		return Uploaded{}, err
	}
	var o outcome
	if err := json.Unmarshal(res.Body, &o); err != nil {
		return Uploaded{}, fault.Wrap(fmt.Errorf("stored outcome: %w", err), fault.Internal, op)
	}
	if o.Code != "" {
		return Uploaded{}, fault.New(o.Code, op)
	}
	return Uploaded{ObjectID: o.ObjectID, Replayed: res.Replayed || o.ObjectID != done.ObjectID}, nil
}

// act is the effect itself. It ends within the window in which it may begin, so
// that nothing becomes visible after the run was concluded without it.
func (s *Service) act(ctx context.Context, done Completion) ([]byte, error) {
	if by, ok := binding.BeginBy(ctx); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	stands, err := s.catalogue.Complete(ctx, done)
	switch {
	case err != nil:
		return nil, err
	case stands.Key != done.Key:
		return json.Marshal(outcome{Code: fault.HandleDenied})
	case stands.ArgsDigest != done.ArgsDigest:
		return json.Marshal(outcome{Code: fault.IdempotencyConflict})
	}
	return json.Marshal(outcome{ObjectID: stands.ObjectID})
}
