package brokers

import (
	"context"
	"crypto/sha256"
	"slices"

	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/rpc"
)

// Download gives a file that was kept, in one piece, to whom its handle was given.
func (b *Brokers) Download(ctx context.Context, req *filebrokerv1.DownloadRequest, stream filebrokerv1connect.FileBrokerServiceDownloadServerStream) error {
	x, err := b.enter(ctx, "Download")
	if err != nil {
		return err
	}
	claims, _ := rpc.ClaimsFrom(ctx)
	f, ok := x.file(req.GetHandle())
	if !ok || !slices.Contains(claims.Handles, f.Handle) {
		return fault.New(fault.HandleDenied, "brokers.Download")
	}
	sum := sha256.Sum256(f.content)
	return stream.Send(&filebrokerv1.DownloadResponse{
		Info: &filebrokerv1.ObjectInfo{Size: f.Size, Sha256: sum[:], MimeType: f.MIMEType, DisplayName: f.DisplayName}, Chunk: f.content,
	})
}
