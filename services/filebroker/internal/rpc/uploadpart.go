package rpc

import (
	"context"
	"crypto/sha256"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/services/filebroker/internal/files"
)

// UploadPart implements the RPC of this name.
func (f *fileBroker) UploadPart(ctx context.Context, stream filebrokerv1connect.FileBrokerServiceUploadPartServerStream) (*filebrokerv1.UploadPartResponse, error) {
	first, err := stream.Receive()
	if err != nil {
		return nil, firstError(err)
	}
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	part, err := partFrom(first.GetPart())
	if err != nil {
		return nil, err
	}
	began := false
	next, err := f.domain.UploadPart(ctx, c, first.GetHandle(), part, func() ([]byte, error) {
		if !began {
			began = true
			return first.GetChunk(), nil
		}
		m, err := stream.Receive()
		switch {
		case err != nil:
			return nil, err
		case m.GetHandle() != first.GetHandle():
			return nil, fault.New(fault.InvalidRequest, "rpc.UploadPart", fault.Detail("handle: the same in every piece"))
		case m.GetPart() != nil:
			return nil, fault.New(fault.InvalidRequest, "rpc.UploadPart", fault.Detail("part: only in the first piece"))
		}
		return m.GetChunk(), nil
	})
	if err != nil {
		return nil, err
	}
	return &filebrokerv1.UploadPartResponse{NextOffset: uint64(max(next, 0))}, nil
}

func partFrom(p *filebrokerv1.PartInfo) (out files.NewPart, err error) {
	if p == nil {
		return out, fault.New(fault.InvalidRequest, "rpc.part", fault.Detail("part: required in the first piece"))
	}
	if len(p.GetSha256()) != sha256.Size {
		return out, fault.New(fault.InvalidRequest, "rpc.part", fault.Detail("part.sha256: 32 bytes"))
	}
	if out.Offset, err = sizeFrom(p.GetOffset(), "part.offset"); err != nil {
		return out, err
	}
	size, err := sizeFrom(p.GetSize(), "part.size")
	if err != nil {
		return out, err
	}
	out.Content = blob.Content{Size: size, SHA256: [sha256.Size]byte(p.GetSha256())}
	out.Whole, err = infoFrom(p.GetWhole())
	return out, err
}
