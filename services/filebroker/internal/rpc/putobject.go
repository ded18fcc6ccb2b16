package rpc

import (
	"context"

	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/rpc"
)

// PutObject implements the RPC of this name.
func (f *fileBroker) PutObject(ctx context.Context, stream filebrokerv1connect.FileBrokerServicePutObjectServerStream) (*filebrokerv1.PutObjectResponse, error) {
	first, err := stream.Receive()
	if err != nil {
		return nil, firstError(err)
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	info, err := infoFrom(first.GetInfo())
	if err != nil {
		return nil, err
	}
	id, err := f.domain.Put(ctx, g, info, parts(first, stream.Receive))
	if err != nil {
		return nil, err
	}
	return &filebrokerv1.PutObjectResponse{ObjectId: id}, nil
}
