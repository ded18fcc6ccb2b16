package files

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"slices"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// Bounds of a part of an upload; the last one may be smaller.
const (
	MinPartBytes = 256 << 10
	MaxPartBytes = 8 << 20
)

// NewPart is a part that comes.
type NewPart struct {
	blob.Content

	// Offset is where the parts before it end.
	Offset int64
	// Whole is the object, the same in every part.
	Whole Info
}

// UploadPart stores one part of an object through an upload handle, and says where
// the next one begins. A part is kept when all of it is there and has its SHA-256;
// the same part again is kept once. Nothing of it is visible before CompleteUpload.
//
// Faults: those of a handle; handle_denied also where the upload is completed;
// request_too_large; invalid_request where size or digest are not the part's, or a
// part is too small; revision_conflict where the parts before it end elsewhere, which
// UploadStatus tells; idempotency_conflict where the object is another one than that
// of the first part; capacity; stale_lease; persistence_failed.
func (s *Service) UploadPart(ctx context.Context, c Caller, handle string, p NewPart, parts blob.Parts) (next int64, err error) {
	const op = "files.UploadPart"
	h, err := s.authorize(ctx, c, handle, DirectionUpload)
	if err != nil {
		return 0, err
	}
	if p.Whole, err = h.takes(p.Whole); err != nil {
		return 0, err
	}
	if err := p.check(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithDeadlineCause(ctx, h.ExpiresAt, context.DeadlineExceeded)
	defer cancel()
	u, err := s.partial(ctx, c.Grant.Envelope(), h, p.Whole)
	switch {
	case err != nil:
		return 0, err
	case u.ArgsDigest != p.Whole.argsDigest("upload:"+h.ID):
		return 0, fault.New(fault.IdempotencyConflict, op)
	case u.has(p): // a repeat, whose content is only checked
		return u.Next(), receive(ctx, io.Discard, Info{Content: p.Content}, parts)
	case u.Next() != p.Offset:
		return 0, elsewhere()
	}
	stored := Part{Content: p.Content, ID: rand.Text()}
	if err := s.storePart(ctx, u, stored, parts); err != nil {
		return 0, err
	}
	if _, err := s.guard.Admit(ctx, c.Grant.Envelope()); err != nil {
		s.dropBlobs(ctx, u.partKey(stored))
		if fault.Is(err, fault.StaleLease) { // nobody can go on with it: the handle is of this generation
			staged{s: s, object: Object{ID: u.ObjectID, BindingID: u.BindingID}}.drop(ctx)
			s.endUpload(ctx, u)
		}
		return 0, err
	}
	stands, err := s.catalogue.AppendPart(ctx, u, stored)
	if err != nil { // it may stand: the same part again finds it, or it is collected
		return 0, failed(ctx, err, op)
	}
	if !slices.Contains(stands.Parts, stored) { // another attempt was first
		s.dropBlobs(ctx, u.partKey(stored))
	}
	if !stands.has(p) {
		return 0, elsewhere()
	}
	return stands.Next(), nil
}

func elsewhere() error {
	return fault.New(fault.RevisionConflict, "files.UploadPart", fault.Detail("part.offset: not where the parts before it end"))
}

func (p NewPart) check() error {
	bad := func(detail string) error {
		return fault.New(fault.InvalidRequest, "files.UploadPart", fault.Detail(detail))
	}
	switch rest := p.Whole.Size - p.Offset; {
	case p.Offset < 0 || p.Size < 1 || p.Size > MaxPartBytes:
		return bad("part.size: 1 to 8388608")
	case p.Size > rest:
		return bad("part: within the object")
	case p.Size < MinPartBytes && p.Size < rest:
		return bad("part.size: 262144 or more, but for the last")
	}
	return nil
}

// has reports whether that very part is there.
func (u PartialUpload) has(p NewPart) bool {
	var offset int64
	for _, have := range u.Parts {
		if offset == p.Offset && have.Content == p.Content {
			return true
		}
		offset += have.Size
	}
	return false
}

// partial gives the upload of a handle, and begins it where there is none.
func (s *Service) partial(ctx context.Context, e fence.Envelope, h Handle, whole Info) (PartialUpload, error) {
	const op = "files.partial"
	u, err := s.catalogue.PartialUpload(ctx, h.ID)
	switch {
	case err == nil:
		return u, nil
	case !errors.Is(err, ErrNoUpload):
		return u, failed(ctx, err, op)
	}
	switch _, err := s.catalogue.Completed(ctx, h.ID); {
	case err == nil:
		return u, fault.New(fault.HandleDenied, op)
	case !errors.Is(err, ErrNoCompletion):
		return u, failed(ctx, err, op)
	}
	e.Deadline = h.ExpiresAt // the room is kept as long as parts may come
	st, err := s.reserve(ctx, e, whole)
	if err != nil {
		return u, err
	}
	u, err = s.catalogue.BeginUpload(ctx, PartialUpload{
		Handle: h.ID, ObjectID: st.object.ID, BindingID: h.BindingID, ArgsDigest: whole.argsDigest("upload:" + h.ID), Info: whole, ExpiresAt: h.ExpiresAt,
	})
	if err != nil || u.ObjectID != st.object.ID {
		st.drop(ctx)
	}
	if err != nil {
		return u, failed(ctx, err, op)
	}
	return u, nil
}

// storePart writes the content of a part.
func (s *Service) storePart(ctx context.Context, u PartialUpload, p Part, parts blob.Parts) error {
	_, err := s.writeBlob(ctx, u.partKey(p), func(w io.Writer) (Info, error) {
		return Info{}, receive(ctx, w, Info{Content: p.Content}, parts)
	})
	return err
}

// UploadStatus says where an upload in parts goes on, and whether it is completed.
// Faults: those of a handle; persistence_failed.
func (s *Service) UploadStatus(ctx context.Context, c Caller, handle string) (next int64, completed bool, err error) {
	const op = "files.UploadStatus"
	h, err := s.authorize(ctx, c, handle, DirectionUpload)
	if err != nil {
		return 0, false, err
	}
	// The upload first: it is forgotten after it was completed, never before.
	u, err := s.catalogue.PartialUpload(ctx, h.ID)
	if err != nil && !errors.Is(err, ErrNoUpload) {
		return 0, false, failed(ctx, err, op)
	}
	switch _, err := s.catalogue.Completed(ctx, h.ID); {
	case err == nil:
		return 0, true, nil
	case !errors.Is(err, ErrNoCompletion):
		return 0, false, failed(ctx, err, op)
	}
	return u.Next(), false, nil
}

// CompleteUpload makes the object visible whose parts are all there, if it has the
// SHA-256 that was announced; the handle is used up by that. An object that has
// another one is given up, and its upload begins again.
//
// Faults: those of Upload; handle_invalid where no part was uploaded;
// revision_conflict where some are missing.
func (s *Service) CompleteUpload(ctx context.Context, c Caller, handle string) (Uploaded, error) {
	const op = "files.CompleteUpload"
	h, err := s.authorize(ctx, c, handle, DirectionUpload)
	if err != nil {
		return Uploaded{}, err
	}
	ctx, cancel := context.WithDeadlineCause(ctx, h.ExpiresAt, context.DeadlineExceeded)
	defer cancel()
	key := c.Grant.Envelope().IdempotencyKey
	u, uerr := s.catalogue.PartialUpload(ctx, h.ID)
	switch stands, err := s.catalogue.Completed(ctx, h.ID); {
	case err == nil && stands.Key != key:
		return Uploaded{}, fault.New(fault.HandleDenied, op)
	case err == nil: // the ledger, or the slot, has the answer
		if uerr == nil {
			s.endUpload(ctx, u)
		}
		return s.complete(ctx, c, Completion{Slot: h.ID, Key: key, ArgsDigest: stands.ArgsDigest})
	case !errors.Is(err, ErrNoCompletion):
		return Uploaded{}, failed(ctx, err, op)
	case errors.Is(uerr, ErrNoUpload):
		return Uploaded{}, fault.New(fault.HandleInvalid, op, fault.Detail("handle: nothing was uploaded with it in parts"))
	case uerr != nil:
		return Uploaded{}, failed(ctx, uerr, op)
	case u.Next() != u.Info.Size:
		return Uploaded{}, fault.New(fault.RevisionConflict, op, fault.Detail("parts: some are missing"))
	}
	st := staged{s: s, object: Object{ID: u.ObjectID, BindingID: u.BindingID, Info: u.Info}}
	if _, err := s.write(ctx, st.object, func(w io.Writer) (Info, error) { return s.assemble(ctx, u, w) }); err != nil {
		if fault.Is(err, fault.InvalidRequest) || fault.Is(err, fault.RequestTooLarge) {
			st.drop(ctx)
			s.endUpload(ctx, u)
		}
		return Uploaded{}, err
	}
	up, err := s.complete(ctx, c, Completion{Slot: h.ID, Key: key, ArgsDigest: u.ArgsDigest, ObjectID: u.ObjectID})
	if err == nil {
		s.endUpload(ctx, u)
	}
	return up, err
}

// assemble writes all parts one after the other, and checks what they are together.
func (s *Service) assemble(ctx context.Context, u PartialUpload, w io.Writer) (Info, error) {
	var start sniffer
	next := 0
	var open io.ReadCloser
	defer func() {
		if open != nil {
			_ = open.Close() // it was read as far as anybody wanted
		}
	}()
	buf := make([]byte, blob.MaxChunkBytes)
	err := receive(ctx, io.MultiWriter(w, &start), u.Info, func() ([]byte, error) {
		for {
			if open == nil {
				if next == len(u.Parts) {
					return nil, io.EOF
				}
				var err error
				if open, err = s.blobs.Open(ctx, u.partKey(u.Parts[next]), 0); err != nil {
					return nil, failed(ctx, err, "files.assemble")
				}
				next++
			}
			n, err := open.Read(buf)
			switch {
			case n > 0:
				return buf[:n], nil
			case errors.Is(err, io.EOF):
				err = open.Close()
				open = nil
				if err == nil {
					continue
				}
			case err == nil:
				continue
			}
			return nil, failed(ctx, err, "files.assemble")
		}
	})
	if err != nil {
		return Info{}, err
	}
	return start.confirm(u.Info)
}

// endUpload forgets an upload, and removes its parts first: what is left of it is
// still known. It has no error, and says whether it is done.
func (s *Service) endUpload(ctx context.Context, u PartialUpload) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropBound)
	defer cancel()
	keys := make([]string, len(u.Parts))
	for i, p := range u.Parts {
		keys[i] = u.partKey(p)
	}
	if !s.dropBlobs(ctx, keys...) {
		return false
	}
	if err := s.catalogue.EndUpload(ctx, u.Handle); err != nil {
		s.logger.WarnContext(ctx, "an upload that has ended was left behind", "error", err.Error())
		return false
	}
	return true
}

// dropBlobs has no error: what is left is collected.
func (s *Service) dropBlobs(ctx context.Context, keys ...string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropBound)
	defer cancel()
	for _, key := range keys {
		if err := s.blobs.Delete(ctx, key); err != nil {
			s.logger.WarnContext(ctx, "a part of an upload was left behind", "error", err.Error())
			return false
		}
	}
	return true
}
