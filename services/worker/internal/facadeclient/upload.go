package facadeclient

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
	"strings"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/worker/internal/harness"
)

const (
	// chunkBytes of one part of an upload: the largest that the broker takes.
	chunkBytes = 256 << 10
	// maxNameBytes of a display name, which is no path.
	maxNameBytes = 255
	// anyMIMEType stands where a harness names none that the broker takes.
	anyMIMEType = "application/octet-stream"
)

var mimeTypePattern = regexp.MustCompile(`^[a-z0-9.+-]{1,64}/[a-z0-9.+-]{1,128}$`)

// Write completes an upload, at most once for its handle: a handle takes one
// object, and its key follows from it. A lost answer is asked for again with the
// same content under the same key; what stays unknown is tool_outcome_unknown. A
// content over partBytes goes in parts, so that what has arrived stays.
func (f files) Write(ctx context.Context, u harness.Upload, name, mimeType string, content []byte) (string, error) {
	const op = "facadeclient.Write"
	token, err := f.token(capability.FileBroker)
	if err != nil {
		return "", err
	}
	if uint64(len(content)) > u.MaxBytes {
		return "", fault.New(fault.RequestTooLarge, op, fault.Detail("files: larger than the handle takes"))
	}
	if mimeType = strings.ToLower(mimeType); !mimeTypePattern.MatchString(mimeType) {
		mimeType = anyMIMEType
	}
	sum := sha256.Sum256(content)
	info := &filebrokerv1.ObjectInfo{
		Size: uint64(len(content)), Sha256: sum[:], MimeType: mimeType,
		DisplayName: event.Truncate(strings.ToValidUTF8(name, "\uFFFD"), maxNameBytes),
	}
	ctx = rpc.WithToken(ctx, token)
	write := f.writeWhole
	if len(content) > partBytes {
		write = f.writeParts
	}
	res, err := write(ctx, u, info, content)
	switch same := bytes.Equal(res.sha256, sum[:]); {
	case err != nil:
		return "", err
	case res.out.mayHaveActed(ctx):
		return "", fault.Wrap(res.out.err, fault.ToolOutcomeUnknown, op)
	case res.out.err != nil:
		return "", res.out.err
	case !same && res.already:
		return "", fault.New(fault.IdempotencyConflict, op, fault.Detail("files: the handle has another content"))
	case !same:
		return "", fault.Wrap(errors.New("upload has another SHA-256"), fault.PersistenceFailed, op)
	}
	return res.object, nil
}

// result is what became of the completion of an upload.
type result struct {
	object string
	sha256 []byte
	// already says that the handle was used up before this write.
	already bool
	out     outcome
}

// writeWhole uploads a content in one request.
func (f files) writeWhole(ctx context.Context, u harness.Upload, info *filebrokerv1.ObjectInfo, content []byte) (result, error) {
	var res *filebrokerv1.UploadResponse
	out := settle(ctx, f.pause, func(ctx context.Context) (err error) {
		res, err = f.upload(ctx, u.Handle, info, content)
		return err
	})
	return result{object: res.GetObjectId(), sha256: res.GetSha256(), out: out}, nil
}

// upload sends the whole content once.
func (f files) upload(ctx context.Context, handle string, info *filebrokerv1.ObjectInfo, content []byte) (*filebrokerv1.UploadResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that was not sent to its end
	stream, err := f.client.Upload(ctx)
	if err != nil {
		return nil, err
	}
	envelope := f.envelope(uploadKey(handle)).Proto()
	for first := true; first || len(content) > 0; first = false {
		n := min(len(content), chunkBytes)
		part := &filebrokerv1.UploadRequest{Envelope: envelope, Handle: handle, Chunk: content[:n]}
		if first {
			part.Info = info
		}
		content = content[n:]
		if stream.Send(part) != nil {
			break // what the broker says is the reason
		}
	}
	return stream.CloseAndReceive()
}

// uploadKey is the key of the one effect that a handle allows. A handle can be as
// long as a key, and keys of tool calls are a harness's to choose.
func uploadKey(handle string) string {
	sum := sha256.Sum256([]byte(handle))
	return "upload:" + hex.EncodeToString(sum[:16])
}
