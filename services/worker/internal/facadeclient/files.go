package facadeclient

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/worker/internal/harness"
)

type files struct {
	authority
	client filebrokerv1connect.FileBrokerServiceClient
}

// Read downloads a file. One that is larger than its bound, shorter than it
// says, or of another SHA-256 is an error.
func (f files) Read(ctx context.Context, file harness.File, maxBytes int) ([]byte, error) {
	token, err := f.token(capability.FileBroker)
	if err != nil {
		return nil, err
	}
	tooLarge := fault.New(fault.RequestTooLarge, "facadeclient.Read", fault.Detail("files: larger than what may be read"))
	if file.Size > uint64(max(maxBytes, 0)) {
		return nil, tooLarge
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that was not read to its end
	stream, err := f.client.Download(rpc.WithToken(ctx, token), &filebrokerv1.DownloadRequest{
		Envelope: f.envelope("download").Proto(), Handle: file.Handle,
	})
	if err != nil {
		return nil, err
	}
	var info *filebrokerv1.ObjectInfo
	var out []byte
	for {
		part, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if info == nil {
			info = part.GetInfo()
		}
		if len(out)+len(part.GetChunk()) > maxBytes {
			return nil, tooLarge
		}
		out = append(out, part.GetChunk()...)
	}
	if sum := sha256.Sum256(out); info == nil || !bytes.Equal(sum[:], info.GetSha256()) {
		return nil, fault.Wrap(errors.New("file does not have its SHA-256"), fault.PersistenceFailed, "facadeclient.Read")
	}
	return out, nil
}
