package rpc

import (
	"context"

	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
)

// ReadObject implements the RPC of this name.
func (f *fileBroker) ReadObject(ctx context.Context, req *filebrokerv1.ReadObjectRequest, stream filebrokerv1connect.FileBrokerServiceReadObjectServerStream) error {
	r, err := rangeFrom(req)
	if err != nil {
		return err
	}
	return f.domain.Read(ctx, req.GetBindingId(), req.GetObjectId(), r, func(chunk []byte) error {
		return stream.Send(&filebrokerv1.ReadObjectResponse{Chunk: chunk})
	})
}
