package files

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strconv"
	"strings"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/filebroker/internal/digest"
)

// Issue asks for a handle.
type Issue struct {
	Direction Direction
	// ObjectID of a download.
	ObjectID string
	// Contents of a download that has no object, at most MaxHandleContents.
	Contents [][sha256.Size]byte
	// MaxBytes of an upload.
	MaxBytes int64
	// SingleUse of a download, and Types of an upload; see [Handle].
	SingleUse bool
	Types     []string
	ExpiresAt time.Time
}

// Issue makes a handle for the run of the grant, for the control plane. The same
// idempotency key with the same arguments gives the same handle.
//
// Faults: stale_lease with no handle made; invalid_request; not_found where the
// object is not one of the binding and epoch, or where a content is not there; capacity where the run has
// MaxHandlesPerRun; idempotency_conflict; persistence_failed.
func (s *Service) Issue(ctx context.Context, g fence.Grant, is Issue) (handle string, err error) {
	const op = "files.Issue"
	if err := g.Validate(); err != nil {
		return "", err
	}
	e := g.Envelope()
	if err := s.checkIssue(ctx, g, is); err != nil {
		return "", err
	}
	h := Handle{
		ID:        "fh_" + rand.Text(),
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
		Direction: is.Direction, ObjectID: is.ObjectID, MaxBytes: is.MaxBytes, SingleUse: is.SingleUse, Types: strings.Join(is.Types, " "), ExpiresAt: is.ExpiresAt,
		Contents: joined(is.Contents),
		Issue:    digest.Of(e.BindingID, strconv.FormatUint(uint64(e.Epoch), 10), strconv.FormatUint(uint64(e.Generation), 10), e.RunID, e.IdempotencyKey),
		ArgsDigest: digest.Of(string(is.Direction), is.ObjectID, strconv.FormatInt(is.MaxBytes, 10), is.ExpiresAt.UTC().Format(time.RFC3339Nano),
			strconv.FormatBool(is.SingleUse), strings.Join(is.Types, " "), joined(is.Contents)),
	}
	stands, err := s.catalogue.StageHandle(ctx, h, MaxHandlesPerRun)
	switch {
	case errors.Is(err, ErrFull):
		return "", fault.New(fault.Capacity, op, fault.Detail("handles: at most "+strconv.Itoa(MaxHandlesPerRun)+" in a run"))
	case err != nil:
		return "", failed(ctx, err, op)
	case stands.ArgsDigest != h.ArgsDigest:
		return "", fault.New(fault.IdempotencyConflict, op)
	}
	if _, err := s.guard.Admit(ctx, e); err != nil {
		return "", s.abandon(ctx, err, stands.ID)
	}
	if err := s.refer(ctx, is); err != nil {
		return "", err
	}
	if err := s.catalogue.ConfirmHandle(ctx, stands.ID); err != nil {
		return "", failed(ctx, err, op)
	}
	return stands.ID, nil
}

// refer says that a handle refers to what is read with it: the collection may have been
// first since that was looked at.
func (s *Service) refer(ctx context.Context, is Issue) (err error) {
	const op = "files.refer"
	switch {
	case is.Direction != DirectionDownload:
		return nil
	case len(is.Contents) > 0:
		err = s.catalogue.ReferContents(ctx, is.Contents)
	default:
		err = s.catalogue.Refer(ctx, is.ObjectID)
	}
	switch {
	case errors.Is(err, ErrNoContent):
		return fault.New(fault.NotFound, op, fault.Detail("contents: one is not kept here; start the control plane with the files of its agents again"))
	case errors.Is(err, ErrNoObject):
		return fault.New(fault.NotFound, op, fault.Detail("object_id: no such object in this conversation"))
	case err != nil:
		return failed(ctx, err, op)
	}
	return nil
}

func (s *Service) checkIssue(ctx context.Context, g fence.Grant, is Issue) error {
	const op = "files.Issue"
	bad := func(detail string) error { return fault.New(fault.InvalidRequest, op, fault.Detail(detail)) }
	switch {
	case !is.ExpiresAt.After(s.now()):
		return bad("expires_at: in the future")
	case is.ExpiresAt.After(g.Committed().RunDeadline):
		return bad("expires_at: not after the deadline of the run")
	case is.Direction == DirectionUpload && (is.ObjectID != "" || len(is.Contents) > 0):
		return bad("object_id, contents: only for a download")
	case is.Direction == DirectionUpload && (is.MaxBytes < 1 || is.MaxBytes > MaxObjectBytes):
		return bad("max_bytes: 1 to 67108864 for an upload")
	case is.Direction == DirectionUpload && is.SingleUse:
		return bad("single_use: only for a download, an upload is made once")
	case is.Direction == DirectionUpload:
		return nil
	case is.Direction != DirectionDownload:
		return bad("direction: download or upload")
	case is.MaxBytes != 0:
		return bad("max_bytes: only for an upload")
	case len(is.Types) > 0:
		return bad("mime_types: only for an upload")
	case len(is.Contents) > 0 && (is.ObjectID != "" || is.SingleUse):
		return bad("contents: without object_id and single_use")
	case len(is.Contents) > MaxHandleContents:
		return bad("contents: at most 512")
	case len(is.Contents) > 0:
		return nil
	}
	o, err := s.catalogue.Object(ctx, is.ObjectID)
	e := g.Envelope()
	switch {
	case errors.Is(err, ErrNoObject), err == nil && (o.BindingID != e.BindingID || o.Epoch != e.Epoch):
		return fault.New(fault.NotFound, op, fault.Detail("object_id: no such object in this conversation"))
	case err != nil:
		return failed(ctx, err, op)
	}
	return nil
}

// abandon drops a handle where it is certain that nobody may confirm it any more.
// Another attempt of the same request may have confirmed it in time; then it
// stays, and opens nothing, because its generation is over.
func (s *Service) abandon(ctx context.Context, cause error, id string) error {
	if fault.Is(cause, fault.StaleLease) {
		if err := s.catalogue.DropHandle(ctx, id); err != nil {
			s.logger.WarnContext(ctx, "a staged handle of a replaced lease was left behind", "error", err.Error())
		}
	}
	return cause
}
