package rpc

import (
	"context"
	"crypto/sha256"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
)

// PutContent implements the RPC of this name.
func (f *fileBroker) PutContent(ctx context.Context, stream filebrokerv1connect.FileBrokerServicePutContentServerStream) (*filebrokerv1.PutContentResponse, error) {
	first, err := stream.Receive()
	if err != nil {
		return nil, firstError(err)
	}
	content, err := contentFrom(first.GetInfo(), "info")
	if err != nil {
		return nil, err
	}
	if err := f.domain.PutContent(ctx, content, parts(first, stream.Receive)); err != nil {
		return nil, err
	}
	return &filebrokerv1.PutContentResponse{}, nil
}

// KeepContent implements the RPC of this name.
func (f *fileBroker) KeepContent(ctx context.Context, req *filebrokerv1.KeepContentRequest) (*filebrokerv1.KeepContentResponse, error) {
	content, err := contentFrom(req.GetContent(), "content")
	if err != nil {
		return nil, err
	}
	if err := f.domain.KeepContent(ctx, content); err != nil {
		return nil, err
	}
	return &filebrokerv1.KeepContentResponse{}, nil
}

func contentFrom(i *filebrokerv1.ContentInfo, field string) (blob.Content, error) {
	if len(i.GetSha256()) != sha256.Size {
		return blob.Content{}, fault.New(fault.InvalidRequest, "rpc.content", fault.Detail(field+": required, with a sha256 of 32 bytes"))
	}
	size, err := sizeFrom(i.GetSize(), field+".size")
	return blob.Content{Size: size, SHA256: [sha256.Size]byte(i.GetSha256())}, err
}
