package rpc

import (
	"context"

	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
)

// StatObject implements the RPC of this name.
func (f *fileBroker) StatObject(ctx context.Context, req *filebrokerv1.StatObjectRequest) (*filebrokerv1.StatObjectResponse, error) {
	o, err := f.domain.Stat(ctx, req.GetObjectId())
	if err != nil {
		return nil, err
	}
	return &filebrokerv1.StatObjectResponse{BindingId: o.BindingID, Epoch: o.Epoch, Info: infoProto(&o.Info)}, nil
}
