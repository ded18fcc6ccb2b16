package files

import (
	"context"
	"errors"
	"io"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
)

// Stat gives a visible object, for the control plane, which knows whose the
// conversation is. Faults: not_found; persistence_failed.
func (s *Service) Stat(ctx context.Context, id string) (Object, error) {
	o, err := s.catalogue.Object(ctx, id)
	switch {
	case errors.Is(err, ErrNoObject):
		return Object{}, fault.New(fault.NotFound, "files.Stat")
	case err != nil:
		return Object{}, failed(ctx, err, "files.Stat")
	}
	return o, nil
}

// Range of an object: Length bytes from Offset on, or all that follow where Length
// is 0.
type Range struct{ Offset, Length int64 }

// Read sends an object of a conversation, or a range of it, for the control plane.
// The last part of a whole object leaves only when all of it has its SHA-256; of a
// range nobody can say that but who has the rest, and it ends cleanly only when all
// of it was there.
//
// Faults: not_found, also for an object of another conversation; invalid_request
// for a range that the object does not have; persistence_failed where it is
// damaged or missing; deadline_exceeded.
func (s *Service) Read(ctx context.Context, bindingID, id string, r Range, send func(chunk []byte) error) error {
	o, err := s.Stat(ctx, id)
	if err != nil {
		return err
	}
	if o.BindingID != bindingID {
		return fault.New(fault.NotFound, "files.Read")
	}
	return s.send(ctx, o, r, func(_ *Info, chunk []byte) error { return send(chunk) })
}

// send sends the info and a range of an object.
func (s *Service) send(ctx context.Context, o Object, r Range, to Reader) error {
	return s.sendBlob(ctx, o.blobKey(), o.Info, r, to)
}

func (s *Service) sendBlob(ctx context.Context, key string, info Info, r Range, to Reader) error {
	const op = "files.send"
	if r.Length == 0 {
		r.Length = info.Size - r.Offset
	}
	if r.Offset < 0 || r.Length < 0 || r.Offset > info.Size || r.Length > info.Size-r.Offset {
		return fault.New(fault.InvalidRequest, op, fault.Detail("offset and length: within the object"))
	}
	content, err := s.blobs.Open(ctx, key, r.Offset)
	if err != nil {
		return failed(ctx, err, op)
	}
	if r.Length == info.Size {
		err = transfer(ctx, content, info, to)
	} else {
		err = transferRange(ctx, content, info, r.Length, to)
	}
	if cerr := content.Close(); err == nil && cerr != nil {
		err = failed(ctx, cerr, op)
	}
	return err
}

// transferRange sends the info and n bytes of r.
func transferRange(ctx context.Context, r io.Reader, info Info, n int64, to Reader) error {
	const op = "files.transferRange"
	head := &info
	buf := make([]byte, min(n, blob.MaxChunkBytes))
	for {
		part := buf[:min(n, int64(len(buf)))]
		if _, err := io.ReadFull(r, part); err != nil {
			return failed(ctx, err, op)
		}
		if err := to(head, part); err != nil {
			return interrupted(ctx, err, op)
		}
		head, n = nil, n-int64(len(part))
		if n == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return interrupted(ctx, context.Cause(ctx), op)
		}
	}
}
