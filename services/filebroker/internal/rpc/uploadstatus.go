package rpc

import (
	"context"

	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
)

// UploadStatus implements the RPC of this name.
func (f *fileBroker) UploadStatus(ctx context.Context, req *filebrokerv1.UploadStatusRequest) (*filebrokerv1.UploadStatusResponse, error) {
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	next, completed, err := f.domain.UploadStatus(ctx, c, req.GetHandle())
	if err != nil {
		return nil, err
	}
	return &filebrokerv1.UploadStatusResponse{NextOffset: uint64(max(next, 0)), Completed: completed}, nil
}
