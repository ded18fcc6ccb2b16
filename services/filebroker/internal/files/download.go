package files

import (
	"context"
	"errors"
	"io"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
)

// Reader takes an object, part by part. The first part has the info, and no
// content where the object has none; chunk must not be kept.
type Reader func(info *Info, chunk []byte) error

// Download sends the object of a download handle, one of its contents, or a range of it. Of the whole
// object the last part leaves only when the SHA-256 of all of them is the object's: a
// damaged object never ends cleanly. It ends with ctx, with the deadline of the request and with the
// handle, whoever reads slowly.
//
// Faults: those of a handle; handle_denied also where another request has used up a
// handle for one use; invalid_request for a range that the object does not have;
// persistence_failed where the object is damaged or
// missing; deadline_exceeded.
func (s *Service) Download(ctx context.Context, c Caller, handle string, r Range, send Reader) error {
	const op = "files.Download"
	h, err := s.authorize(ctx, c, handle, DirectionDownload)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadlineCause(ctx, h.ExpiresAt, context.DeadlineExceeded)
	defer cancel()
	if _, n := nth(handle); n >= 0 {
		return s.downloadContent(ctx, h, n, r, send)
	}
	o, err := s.catalogue.Object(ctx, h.ObjectID)
	if err != nil {
		return failed(ctx, err, op)
	}
	if o.BindingID != h.BindingID || o.Epoch != h.Epoch {
		return fault.New(fault.HandleDenied, op)
	}
	if h.SingleUse {
		key := c.Grant.Envelope().IdempotencyKey
		switch by, err := s.catalogue.UseHandle(ctx, h.ID, key); {
		case err != nil:
			return failed(ctx, err, op)
		case by != key:
			return fault.New(fault.HandleDenied, op, fault.Detail("handle: it was for one use"))
		}
	}
	return s.send(ctx, o, r, send)
}

// transfer sends the info and then all of r, and the last part of it only when it
// is what info says.
func transfer(ctx context.Context, r io.Reader, info Info, send Reader) error {
	const op = "files.transfer"
	first := true
	part := func(chunk []byte) error {
		if first {
			first = false
			return send(&info, chunk)
		}
		return send(nil, chunk)
	}
	err := blob.Send(ctx, r, info.Content, part)
	if err == nil && first { // there was nothing to send
		err = part(nil)
	}
	var gone *blob.SendError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, errors.As(err, &gone):
		return interrupted(ctx, err, op)
	}
	return failed(ctx, err, op)
}
