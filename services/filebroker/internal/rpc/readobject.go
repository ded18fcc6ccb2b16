package rpc

import (
	"context"

	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/services/filebroker/internal/files"
)

// ReadObject implements the RPC of this name.
func (f *fileBroker) ReadObject(ctx context.Context, req *filebrokerv1.ReadObjectRequest, stream filebrokerv1connect.FileBrokerServiceReadObjectServerStream) error {
	offset, err := sizeFrom(req.GetOffset(), "offset")
	if err != nil {
		return err
	}
	length, err := sizeFrom(req.GetLength(), "length")
	if err != nil {
		return err
	}
	return f.domain.Read(ctx, req.GetBindingId(), req.GetObjectId(), files.Range{Offset: offset, Length: length}, func(chunk []byte) error {
		return stream.Send(&filebrokerv1.ReadObjectResponse{Chunk: chunk})
	})
}
