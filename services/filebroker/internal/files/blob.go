package files

import (
	"context"
	"io"

	"cofferdam.dev/services/filebroker/internal/digest"
)

// Blobs keeps contents. A key is made by this package of digests and random ids;
// nothing that anybody sent becomes part of one.
type Blobs interface {
	// Create begins a blob that is there as a whole after Commit, durably, and not
	// at all otherwise.
	Create(ctx context.Context, key string) (BlobWriter, error)
	// Open reads one from its beginning, or ErrNoBlob.
	Open(ctx context.Context, key string) (io.ReadCloser, error)
	// Delete removes one. A repeat is harmless.
	Delete(ctx context.Context, key string) error
}

// BlobWriter writes one blob. Exactly one of Commit and Abort ends it.
type BlobWriter interface {
	io.Writer
	Commit() error
	Abort() error
}

// blobKey puts the objects of a binding under its digest.
func (o Object) blobKey() string { return "objects/" + digest.Of("binding", o.BindingID) + "/" + o.ID }
