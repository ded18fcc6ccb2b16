package filebrokerclient

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/services/controlplane/internal/runs"
)

// Save stores a file for the conversation of the envelope while it comes. An error
// of content is given back unchanged, and nothing is stored then.
func (c *Client) Save(ctx context.Context, env fence.Envelope, head runs.FileHead, content io.Reader) (runs.StoredFile, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that was not brought to its end
	stream, err := c.rpc.PutFile(ctx)
	if err != nil {
		return runs.StoredFile{}, err
	}
	msg := &filebrokerv1.PutFileRequest{Envelope: env.Proto(), Head: &filebrokerv1.FileHead{
		MimeType: head.MIMEType, DisplayName: head.Name, MaxBytes: uint64(max(head.MaxBytes, 0)),
	}}
	sum, size, buf := sha256.New(), uint64(0), make([]byte, chunkBytes)
	for msg.GetEnd() == nil {
		n, err := io.ReadFull(content, buf)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			msg.End = &filebrokerv1.FileEnd{}
		case err != nil:
			return runs.StoredFile{}, err
		}
		sum.Write(buf[:n])
		size += uint64(n) //nolint:gosec // not negative
		msg.Chunk = buf[:n]
		if msg.GetEnd() != nil {
			msg.End.Size, msg.End.Sha256 = size, sum.Sum(nil)
		}
		if err := stream.Send(msg); err != nil {
			break // the answer says why
		}
		msg = &filebrokerv1.PutFileRequest{Envelope: msg.GetEnvelope(), End: msg.GetEnd()}
	}
	res, err := stream.CloseAndReceive()
	if err != nil {
		return runs.StoredFile{}, err
	}
	return stored(res.GetObjectId(), env.BindingID, env.Epoch, res.GetInfo())
}

// Stat describes a file.
func (c *Client) Stat(ctx context.Context, id string) (runs.StoredFile, error) {
	res, err := c.rpc.StatObject(ctx, &filebrokerv1.StatObjectRequest{ObjectId: id})
	if err != nil {
		return runs.StoredFile{}, err
	}
	return stored(id, res.GetBindingId(), res.GetEpoch(), res.GetInfo())
}

var errInfo = errors.New("the file broker described a file in a way that cannot be")

func stored(id, bindingID string, epoch uint32, i *filebrokerv1.ObjectInfo) (runs.StoredFile, error) {
	if len(i.GetSha256()) != sha256.Size || i.GetSize() > runs.MaxFileBytes {
		return runs.StoredFile{}, fault.Wrap(errInfo, fault.Internal, "filebrokerclient.stored")
	}
	return runs.StoredFile{
		ID: id, BindingID: bindingID, Epoch: epoch, Name: i.GetDisplayName(), MIMEType: i.GetMimeType(),
		Size: int64(i.GetSize()), SHA256: [sha256.Size]byte(i.GetSha256()), //nolint:gosec // at most MaxFileBytes
	}, nil
}

// Read sends n bytes of a file from offset on.
func (c *Client) Read(ctx context.Context, f runs.StoredFile, offset, n int64, send func([]byte) error) error {
	if n == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that was not read to its end
	stream, err := c.rpc.ReadObject(ctx, &filebrokerv1.ReadObjectRequest{
		ObjectId: f.ID, BindingId: f.BindingID, Offset: uint64(max(offset, 0)), Length: uint64(max(n, 0)),
	})
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for left := n; ; {
		m, err := stream.Receive()
		switch {
		case errors.Is(err, io.EOF) && left == 0:
			return nil
		case errors.Is(err, io.EOF):
			return fault.Wrap(io.ErrUnexpectedEOF, fault.PersistenceFailed, "filebrokerclient.Read")
		case err != nil:
			return err
		}
		if left -= int64(len(m.GetChunk())); left < 0 {
			return fault.Wrap(errInfo, fault.Internal, "filebrokerclient.Read")
		}
		if err := send(m.GetChunk()); err != nil {
			return err
		}
	}
}
