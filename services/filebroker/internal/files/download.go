package files

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"

	"cofferdam.dev/pkg/fault"
)

// Reader takes an object, part by part. The first part has the info and may have
// no content; chunk must not be kept.
type Reader func(info *Info, chunk []byte) error

// Download sends the object of a download handle. The last part leaves only when
// the SHA-256 of all of them is the object's: a damaged object never ends
// cleanly. It ends with ctx, with the deadline of the request and with the
// handle, whoever reads slowly.
//
// Faults: those of a handle; persistence_failed where the object is damaged or
// missing; deadline_exceeded.
func (s *Service) Download(ctx context.Context, c Caller, handle string, send Reader) error {
	const op = "files.Download"
	h, err := s.authorize(ctx, c, handle, DirectionDownload)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadlineCause(ctx, h.ExpiresAt, context.DeadlineExceeded)
	defer cancel()
	o, err := s.catalogue.Object(ctx, h.ObjectID)
	if err != nil {
		return failed(ctx, err, op)
	}
	if o.BindingID != h.BindingID || o.Epoch != h.Epoch {
		return fault.New(fault.HandleDenied, op)
	}
	r, err := s.blobs.Open(ctx, o.blobKey())
	if err != nil {
		return failed(ctx, err, op)
	}
	err = transfer(ctx, r, o.Info, send)
	if cerr := r.Close(); err == nil && cerr != nil {
		err = failed(ctx, cerr, op)
	}
	return err
}

// transfer sends all of r, and the last part of it only when it is what info
// says.
func transfer(ctx context.Context, r io.Reader, info Info, send Reader) error {
	const op = "files.transfer"
	sum, left := sha256.New(), info.Size
	if left == 0 {
		if err := checkEnd(r, sum.Sum(nil), info); err != nil {
			return failed(ctx, err, op)
		}
	}
	if err := send(&info, nil); err != nil {
		return interrupted(ctx, err, op)
	}
	buf := make([]byte, min(MaxChunkBytes, left))
	for left > 0 {
		if ctx.Err() != nil {
			return fault.From(context.Cause(ctx), op)
		}
		n := min(left, int64(len(buf)))
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return failed(ctx, err, op)
		}
		sum.Write(buf[:n])
		if left -= n; left == 0 {
			if err := checkEnd(r, sum.Sum(nil), info); err != nil {
				return failed(ctx, err, op)
			}
		}
		if err := send(nil, buf[:n]); err != nil {
			return interrupted(ctx, err, op)
		}
	}
	return nil
}

func checkEnd(r io.Reader, sum []byte, info Info) error {
	var more [1]byte
	if _, err := io.ReadFull(r, more[:]); !errors.Is(err, io.EOF) {
		return errors.New("object is longer than its entry says")
	}
	if [sha256.Size]byte(sum) != info.SHA256 {
		return errors.New("object is damaged")
	}
	return nil
}
