package rpc

import (
	"context"
	"crypto/sha256"

	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/filebroker/internal/files"
)

// IssueHandle implements the RPC of this name.
func (f *fileBroker) IssueHandle(ctx context.Context, req *filebrokerv1.IssueHandleRequest) (*filebrokerv1.IssueHandleResponse, error) {
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	if err := req.GetExpiresAt().CheckValid(); err != nil {
		return nil, fault.Wrap(err, fault.InvalidRequest, "rpc.IssueHandle", fault.Detail("expires_at: a valid time"))
	}
	most, err := sizeFrom(req.GetMaxBytes(), "max_bytes")
	if err != nil {
		return nil, err
	}
	contents := make([][sha256.Size]byte, len(req.GetContents()))
	for i, sum := range req.GetContents() {
		copy(contents[i][:], sum) // the schema has checked the length
	}
	id, err := f.domain.Issue(ctx, g, files.Issue{
		Direction: directionFrom(req.GetDirection()), ObjectID: req.GetObjectId(), MaxBytes: most, ExpiresAt: req.GetExpiresAt().AsTime(),
		SingleUse: req.GetSingleUse(), Types: req.GetMimeTypes(), Contents: contents,
	})
	if err != nil {
		return nil, err
	}
	return &filebrokerv1.IssueHandleResponse{Handle: id}, nil
}
