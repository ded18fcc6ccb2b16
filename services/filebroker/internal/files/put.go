package files

import (
	"context"
	"errors"
	"io"
	"strconv"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/filebroker/internal/digest"
)

// Put stores a file that came with the run of the grant, for the control plane,
// or what a tool answered in it, for ToolBroker.
// The same idempotency key with the same file gives the same object.
//
// Faults: stale_lease with nothing visible; invalid_request where size or digest
// are not the content's; request_too_large; capacity where the binding has no
// room; idempotency_conflict; persistence_failed.
func (s *Service) Put(ctx context.Context, g fence.Grant, info Info, parts blob.Parts) (objectID string, err error) {
	const op = "files.Put"
	if err := g.Validate(); err != nil {
		return "", err
	}
	e := g.Envelope()
	if info, err = info.clean(MaxObjectBytes); err != nil {
		return "", err
	}
	c := Completion{
		Slot: "put:" + digest.Of(e.BindingID, strconv.FormatUint(uint64(e.Epoch), 10), e.RunID, e.IdempotencyKey),
		Key:  e.IdempotencyKey, ArgsDigest: info.argsDigest("put"),
	}
	switch stands, err := s.catalogue.Completed(ctx, c.Slot); {
	case err == nil && stands.ArgsDigest != c.ArgsDigest:
		return "", fault.New(fault.IdempotencyConflict, op)
	case err == nil:
		return stands.ObjectID, receive(ctx, io.Discard, info, parts)
	case !errors.Is(err, ErrNoCompletion):
		return "", failed(ctx, err, op)
	}
	st, err := s.stage(ctx, e, info, parts, (*sniffer).demote)
	if err != nil {
		return "", err
	}
	if _, err := s.guard.Admit(ctx, e); err != nil {
		st.drop(ctx)
		return "", err
	}
	c.ObjectID = st.object.ID
	stands, err := s.catalogue.Complete(ctx, c)
	switch {
	case err != nil: // if it is visible now, the same request again gives its id
		st.drop(ctx)
		return "", failed(ctx, err, op)
	case stands.ArgsDigest != c.ArgsDigest:
		st.drop(ctx)
		return "", fault.New(fault.IdempotencyConflict, op)
	case stands.ObjectID != c.ObjectID: // another attempt was first
		st.drop(ctx)
	}
	return stands.ObjectID, nil
}
