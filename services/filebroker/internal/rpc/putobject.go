package rpc

import (
	"context"

	"cofferdam.dev/pkg/blob"
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
	id, err := f.put(ctx, first.GetInfo(), parts(first, stream.Receive))
	if err != nil {
		return nil, err
	}
	return &filebrokerv1.PutObjectResponse{ObjectId: id}, nil
}

// put stores an object for the run of the request.
func (f *fileBroker) put(ctx context.Context, i *filebrokerv1.ObjectInfo, content blob.Parts) (objectID string, err error) {
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return "", err
	}
	info, err := infoFrom(i)
	if err != nil {
		return "", err
	}
	return f.domain.Put(ctx, g, info, content)
}
