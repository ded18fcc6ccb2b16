package files

import (
	"context"
	"errors"
	"slices"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// Caller is who uses a handle, as the door has found out.
type Caller struct {
	Grant fence.Grant
	// Handles that its capability lists.
	Handles []string
}

// authorize finds a handle that the caller may use in this direction now. id may name one
// of the contents of a handle; a capability lists the handle alone.
// Faults: handle_denied where the capability does not list it, or where it is for
// another binding, epoch, generation, run or direction; handle_invalid where this
// service never issued it; handle_expired.
func (s *Service) authorize(ctx context.Context, c Caller, id string, d Direction) (Handle, error) {
	const op = "files.authorize"
	if err := c.Grant.Validate(); err != nil {
		return Handle{}, err
	}
	id, n := nth(id)
	if !slices.Contains(c.Handles, id) {
		return Handle{}, fault.New(fault.HandleDenied, op)
	}
	h, err := s.catalogue.Handle(ctx, id)
	e := c.Grant.Envelope()
	switch {
	case errors.Is(err, ErrNoHandle):
		return Handle{}, fault.New(fault.HandleInvalid, op)
	case err != nil:
		return Handle{}, failed(ctx, err, op)
	case h.BindingID != e.BindingID || h.Epoch != e.Epoch || h.Generation != e.Generation || h.RunID != e.RunID,
		h.Direction != d:
		return Handle{}, fault.New(fault.HandleDenied, op)
	case !s.now().Before(h.ExpiresAt):
		return Handle{}, fault.New(fault.HandleExpired, op)
	case n < 0 != (h.Contents == ""), n >= len(split(h.Contents)):
		return Handle{}, fault.New(fault.HandleInvalid, op)
	}
	return h, nil
}
