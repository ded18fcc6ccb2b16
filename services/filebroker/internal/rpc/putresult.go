package rpc

import (
	"context"

	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
)

// PutResult implements the RPC of this name. That the caller may store something
// for the run, the capability said at the door.
func (f *fileBroker) PutResult(ctx context.Context, stream filebrokerv1connect.FileBrokerServicePutResultServerStream) (*filebrokerv1.PutResultResponse, error) {
	first, err := stream.Receive()
	if err != nil {
		return nil, firstError(err)
	}
	id, err := f.put(ctx, first.GetInfo(), parts(first, stream.Receive))
	if err != nil {
		return nil, err
	}
	return &filebrokerv1.PutResultResponse{ObjectId: id}, nil
}
