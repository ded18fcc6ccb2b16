// Package filebrokerclient puts callers' files into the file broker.
package filebrokerclient

import (
	"context"
	"crypto/rand"
	"crypto/sha256"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/fence"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// chunkBytes of one message of an upload.
const chunkBytes = 256 << 10

// Client puts files. It is a runs.Files.
type Client struct {
	rpc filebrokerv1connect.FileBrokerServiceClient
}

// New makes a Client on a connection to the file broker.
func New(c *connect.Client) *Client {
	return &Client{rpc: filebrokerv1connect.NewFileBrokerServiceClient(c)}
}

// Put stores a file for the run of the envelope and makes a download handle
// that ends with it.
func (c *Client) Put(ctx context.Context, env fence.Envelope, f runs.InlineFile) (worker.File, error) {
	env.IdempotencyKey = "file_" + rand.Text()
	id, err := c.put(ctx, env, f)
	if err != nil {
		return worker.File{}, err
	}
	return c.Handle(ctx, env, runs.StoredFile{ID: id, Name: f.Name, MIMEType: f.MIMEType, Size: int64(len(f.Data))})
}

// Handle makes a download handle for a file of the conversation, which ends with
// the run of the envelope.
func (c *Client) Handle(ctx context.Context, env fence.Envelope, f runs.StoredFile) (worker.File, error) {
	env.IdempotencyKey = "handle_" + rand.Text()
	res, err := c.rpc.IssueHandle(ctx, &filebrokerv1.IssueHandleRequest{
		Envelope: env.Proto(), Direction: filebrokerv1.Direction_DIRECTION_DOWNLOAD, ObjectId: f.ID, ExpiresAt: timestamppb.New(env.Deadline),
	})
	if err != nil {
		return worker.File{}, err
	}
	return worker.File{Handle: res.GetHandle(), DisplayName: f.Name, MIMEType: f.MIMEType, Size: uint64(max(f.Size, 0))}, nil
}

// maxUploadBytes of a file that a run writes.
const maxUploadBytes = 8 << 20

// Uploads makes n handles for the run of the envelope, each for one new file of
// at most 8 MiB. They end with the run.
func (c *Client) Uploads(ctx context.Context, env fence.Envelope, n uint32) ([]worker.Upload, error) {
	out := make([]worker.Upload, 0, n)
	for range n {
		env.IdempotencyKey = "upload_" + rand.Text()
		res, err := c.rpc.IssueHandle(ctx, &filebrokerv1.IssueHandleRequest{
			Envelope: env.Proto(), Direction: filebrokerv1.Direction_DIRECTION_UPLOAD, MaxBytes: maxUploadBytes, ExpiresAt: timestamppb.New(env.Deadline),
		})
		if err != nil {
			return nil, err
		}
		out = append(out, worker.Upload{Handle: res.GetHandle(), MaxBytes: maxUploadBytes})
	}
	return out, nil
}

func (c *Client) put(ctx context.Context, env fence.Envelope, f runs.InlineFile) (objectID string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that was not read to its end
	stream, err := c.rpc.PutObject(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(f.Data)
	msg := &filebrokerv1.PutObjectRequest{Envelope: env.Proto(), Info: &filebrokerv1.ObjectInfo{
		Size: uint64(len(f.Data)), Sha256: sum[:], MimeType: f.MIMEType, DisplayName: f.Name,
	}}
	for rest := f.Data; ; {
		n := min(len(rest), chunkBytes)
		msg.Chunk, rest = rest[:n], rest[n:]
		if err := stream.Send(msg); err != nil {
			break // the answer says why
		}
		if len(rest) == 0 {
			break
		}
		msg = &filebrokerv1.PutObjectRequest{Envelope: env.Proto()}
	}
	res, err := stream.CloseAndReceive()
	if err != nil {
		return "", err
	}
	return res.GetObjectId(), nil
}
