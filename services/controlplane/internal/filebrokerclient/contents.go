package filebrokerclient

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fence"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
)

// contentsKey is the same for every replica and every repeat: the handle belongs to the
// run and generation of the envelope.
const contentsKey = "agent-contents"

// contentTimeout bounds a request about one content, of at most 8 MiB.
const contentTimeout = 30 * time.Second

// PutContent stores a content of an agent, as agents.Contents wants it.
func (c *Client) PutContent(ctx context.Context, of blob.Content, r io.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, contentTimeout)
	defer cancel() // ends a stream that was not brought to its end
	stream, err := c.rpc.PutContent(ctx)
	if err != nil {
		return err
	}
	msg, buf := &filebrokerv1.PutContentRequest{Info: contentInfo(of)}, make([]byte, chunkBytes)
	for last := false; !last; {
		n, err := io.ReadFull(r, buf)
		last = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return err
		}
		msg.Chunk = buf[:n]
		if err := stream.Send(msg); err != nil {
			break // the answer says why
		}
		msg = &filebrokerv1.PutContentRequest{}
	}
	_, err = stream.CloseAndReceive()
	return err
}

// KeepContent says that a version of an agent names a content.
func (c *Client) KeepContent(ctx context.Context, of blob.Content) error {
	ctx, cancel := context.WithTimeout(ctx, contentTimeout)
	defer cancel()
	_, err := c.rpc.KeepContent(ctx, &filebrokerv1.KeepContentRequest{Content: contentInfo(of)})
	return err
}

// IssueContents makes the handle of the run for what its agent has, as lease.Contents
// wants it.
func (c *Client) IssueContents(ctx context.Context, env fence.Envelope, sums [][sha256.Size]byte) (string, error) {
	env.IdempotencyKey = contentsKey
	req := &filebrokerv1.IssueHandleRequest{
		Envelope: env.Proto(), Direction: filebrokerv1.Direction_DIRECTION_DOWNLOAD, ExpiresAt: timestamppb.New(env.Deadline),
	}
	for _, sum := range sums {
		req.Contents = append(req.Contents, sum[:])
	}
	res, err := c.rpc.IssueHandle(ctx, req)
	if err != nil {
		return "", err
	}
	return res.GetHandle(), nil
}

func contentInfo(c blob.Content) *filebrokerv1.ContentInfo {
	return &filebrokerv1.ContentInfo{Sha256: c.SHA256[:], Size: uint64(max(c.Size, 0))}
}
