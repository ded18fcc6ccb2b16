package rpc

import (
	"context"

	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/services/filebroker/internal/files"
)

// Download implements the RPC of this name.
func (f *fileBroker) Download(ctx context.Context, req *filebrokerv1.DownloadRequest, stream filebrokerv1connect.FileBrokerServiceDownloadServerStream) error {
	c, err := callerFrom(ctx)
	if err != nil {
		return err
	}
	r, err := rangeFrom(req)
	if err != nil {
		return err
	}
	return f.domain.Download(ctx, c, req.GetHandle(), r, func(info *files.Info, chunk []byte) error {
		return stream.Send(&filebrokerv1.DownloadResponse{Info: infoProto(info), Chunk: chunk})
	})
}
