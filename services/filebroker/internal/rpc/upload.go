package rpc

import (
	"context"

	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
)

// Upload implements the RPC of this name.
func (f *fileBroker) Upload(ctx context.Context, stream filebrokerv1connect.FileBrokerServiceUploadServerStream) (*filebrokerv1.UploadResponse, error) {
	first, err := stream.Receive()
	if err != nil {
		return nil, firstError(err)
	}
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	info, err := infoFrom(first.GetInfo())
	if err != nil {
		return nil, err
	}
	next := func() (*filebrokerv1.UploadRequest, error) {
		m, err := stream.Receive()
		if err == nil && m.GetHandle() != first.GetHandle() {
			return nil, fault.New(fault.InvalidRequest, "rpc.Upload", fault.Detail("handle: the same in every part"))
		}
		return m, err
	}
	up, err := f.domain.Upload(ctx, c, first.GetHandle(), info, parts(first, next))
	if err != nil {
		return nil, err
	}
	return &filebrokerv1.UploadResponse{ObjectId: up.ObjectID, Sha256: info.SHA256[:], Replayed: up.Replayed}, nil
}
