package rpc

import (
	"context"
	"crypto/sha256"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/filebroker/internal/files"
)

// PutFile implements the RPC of this name.
func (f *fileBroker) PutFile(ctx context.Context, stream filebrokerv1connect.FileBrokerServicePutFileServerStream) (*filebrokerv1.PutFileResponse, error) {
	first, err := stream.Receive()
	if err != nil {
		return nil, firstError(err)
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	head := first.GetHead()
	if head == nil {
		return nil, fault.New(fault.InvalidRequest, "rpc.PutFile", fault.Detail("head: required in the first part"))
	}
	most, err := sizeFrom(head.GetMaxBytes(), "head.max_bytes")
	if err != nil {
		return nil, err
	}
	in := &ended{next: first, receive: stream.Receive}
	o, err := f.domain.PutFile(ctx, g, files.Head{MIME: head.GetMimeType(), Name: head.GetDisplayName(), MaxBytes: most}, in.parts, in.end)
	if err != nil {
		return nil, err
	}
	return &filebrokerv1.PutFileResponse{ObjectId: o.ID, Info: infoProto(&o.Info)}, nil
}

// ended is a stream of parts that says at its end what it was.
type ended struct {
	next    *filebrokerv1.PutFileRequest // received and not given yet
	receive func() (*filebrokerv1.PutFileRequest, error)
	last    *filebrokerv1.FileEnd
}

// parts is a blob.Parts.
func (e *ended) parts() ([]byte, error) {
	m, first := e.next, e.next != nil
	e.next = nil
	if !first {
		var err error
		if m, err = e.receive(); err != nil {
			return nil, err
		}
	}
	switch {
	case !first && m.GetHead() != nil:
		return nil, fault.New(fault.InvalidRequest, "rpc.PutFile", fault.Detail("head: only in the first part"))
	case e.last != nil:
		return nil, fault.New(fault.InvalidRequest, "rpc.PutFile", fault.Detail("end: only in the last part"))
	}
	e.last = m.GetEnd()
	return m.GetChunk(), nil
}

// end is what the sender says that it sent.
func (e *ended) end() (blob.Content, bool) {
	if e.last == nil || len(e.last.GetSha256()) != sha256.Size || e.last.GetSize() > files.MaxObjectBytes {
		return blob.Content{}, false
	}
	return blob.Content{Size: int64(e.last.GetSize()), SHA256: [sha256.Size]byte(e.last.GetSha256())}, true //nolint:gosec // at most MaxObjectBytes
}
