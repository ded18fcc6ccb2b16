package rpc

import (
	"context"

	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
)

// CompleteUpload implements the RPC of this name.
func (f *fileBroker) CompleteUpload(ctx context.Context, req *filebrokerv1.CompleteUploadRequest) (*filebrokerv1.CompleteUploadResponse, error) {
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	up, err := f.domain.CompleteUpload(ctx, c, req.GetHandle())
	if err != nil {
		return nil, err
	}
	o, err := f.domain.Stat(ctx, up.ObjectID)
	if err != nil {
		return nil, err
	}
	return &filebrokerv1.CompleteUploadResponse{ObjectId: up.ObjectID, Sha256: o.Info.SHA256[:], Replayed: up.Replayed}, nil
}
