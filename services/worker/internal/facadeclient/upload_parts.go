package facadeclient

import (
	"context"
	"crypto/sha256"
	"errors"

	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/services/worker/internal/harness"
)

// partBytes of one part of an upload; what is not larger goes in one. The broker
// takes 256 KiB to 8 MiB.
const partBytes = 1 << 20

// writeParts uploads a content part after part. A part whose answer was lost is asked
// for, and sent again only where the broker does not have it; so an upload goes on
// where it was, also one that an earlier attempt left. None of it is visible before
// the completion, which alone is an effect.
func (f files) writeParts(ctx context.Context, u harness.Upload, info *filebrokerv1.ObjectInfo, content []byte) (result, error) {
	next, completed, err := f.stands(ctx, u.Handle)
	if err != nil {
		return result{}, err
	}
	// The last part comes again in any case: only with it the broker says that the
	// upload is of this content.
	for next = min(next, lastPart(len(content))); !completed && next < len(content); {
		if next, completed, err = f.writePart(ctx, u.Handle, info, content, next); err != nil {
			return result{}, err
		}
	}
	var res *filebrokerv1.CompleteUploadResponse
	out := settle(ctx, f.pause, func(ctx context.Context) (err error) {
		res, err = f.client.CompleteUpload(ctx, &filebrokerv1.CompleteUploadRequest{Envelope: f.envelope(uploadKey(u.Handle)).Proto(), Handle: u.Handle})
		return err
	})
	return result{object: res.GetObjectId(), sha256: res.GetSha256(), already: completed, out: out}, nil
}

// lastPart is where the last part begins.
func lastPart(size int) int { return (size - 1) / partBytes * partBytes }

// writePart sends the part that begins at an offset, and gives that of the next one.
// One that the broker does not take there begins where the broker says.
func (f files) writePart(ctx context.Context, handle string, info *filebrokerv1.ObjectInfo, content []byte, offset int) (next int, completed bool, err error) {
	part := content[offset:min(offset+partBytes, len(content))]
	lost := false
	out := repeat(ctx, f.pause, func(ctx context.Context) error {
		if lost {
			switch next, completed, err = f.ask(ctx, handle); {
			case err != nil:
				return err
			case completed || next > offset:
				return nil
			}
		}
		lost = true
		next, err = f.sendPart(ctx, handle, info, part, offset)
		return err
	})
	if fault.Is(out.err, fault.RevisionConflict) {
		next, completed, err = f.stands(ctx, handle)
		if err == nil && !completed && next == offset { // it would go on for ever
			err = out.err
		}
		return next, completed, err
	}
	if out.err == nil && !completed && (next <= offset || next > len(content)) {
		out.err = fault.Wrap(errors.New("an upload goes on where it cannot"), fault.PersistenceFailed, "facadeclient.Write")
	}
	return next, completed, out.err // a part is no effect: there is nothing to be unsure of
}

// sendPart sends one part whole.
func (f files) sendPart(ctx context.Context, handle string, info *filebrokerv1.ObjectInfo, part []byte, offset int) (next int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that was not sent to its end
	stream, err := f.client.UploadPart(ctx)
	if err != nil {
		return 0, err
	}
	envelope, sum := f.envelope(uploadKey(handle)).Proto(), sha256.Sum256(part)
	first := &filebrokerv1.PartInfo{Offset: uint64(offset), Size: uint64(len(part)), Sha256: sum[:], Whole: info} //nolint:gosec // not negative
	for len(part) > 0 {
		n := min(len(part), chunkBytes)
		if stream.Send(&filebrokerv1.UploadPartRequest{Envelope: envelope, Handle: handle, Part: first, Chunk: part[:n]}) != nil {
			break // what the broker says is the reason
		}
		first, part = nil, part[n:]
	}
	res, err := stream.CloseAndReceive()
	return int(min(res.GetNextOffset(), maxOffset)), err
}

// maxOffset is beyond every upload.
const maxOffset = 1 << 40

// stands says how far an upload has come.
func (f files) stands(ctx context.Context, handle string) (next int, completed bool, err error) {
	out := repeat(ctx, f.pause, func(ctx context.Context) error {
		next, completed, err = f.ask(ctx, handle)
		return err
	})
	return next, completed, out.err
}

func (f files) ask(ctx context.Context, handle string) (next int, completed bool, err error) {
	res, err := f.client.UploadStatus(ctx, &filebrokerv1.UploadStatusRequest{Envelope: f.envelope(uploadKey(handle)).Proto(), Handle: handle})
	return int(min(res.GetNextOffset(), maxOffset)), res.GetCompleted(), err
}
