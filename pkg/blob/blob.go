// Package blob is what services know of an object store: large contents that
// are there as a whole or not at all. Back ends are in blobstore, and each passes
// the suite in blobtest.
//
// A blob has no owner, no name and no history here. Which blobs there are is
// known by the catalogue of the service that wrote them: it has an entry before
// the blob is written. A blob without one is garbage, and who collects it lists
// the store.
package blob

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"
)

// MaxBytes bounds one blob: 64 MiB.
const MaxBytes = 64 << 20

// ErrNotFound says that there is no such blob.
var ErrNotFound = errors.New("blob: not found")

// Store keeps blobs. Its methods are safe for concurrent use, also from several
// processes, and end with their context. Every error but ErrNotFound is a
// failure of the store.
type Store interface {
	// Create begins a blob that is there as a whole after Commit, durably, and not
	// at all otherwise. One of the same key that stands is replaced. A context that
	// has ended before Commit commits nothing.
	Create(ctx context.Context, key string) (Writer, error)
	// Open reads one from offset to its end, or ErrNotFound. An offset behind the
	// end reads nothing.
	Open(ctx context.Context, key string, offset int64) (io.ReadCloser, error)
	// Delete removes one. A repeat is harmless.
	Delete(ctx context.Context, key string) error
	// Each tells of every blob below a folder, a key without its end, in no order:
	// those that were there before it began, and stay, at least. It ends with the
	// first error of tell, and gives it back.
	Each(ctx context.Context, folder string, tell func(Entry) error) error
}

// Entry is what a store knows of a blob.
type Entry struct {
	Key string
	// Written is when it was committed, by the clock of the store.
	Written time.Time
}

// Writer writes one blob. Exactly one of Commit and Abort ends it.
type Writer interface {
	io.Writer
	Commit() error
	Abort() error
}

const maxKey = 512

// ValidKey reports whether key is one: elements of A-Z, a-z, 0-9, _ and - with a
// slash between each two, of at most 512 bytes. A service makes its keys of digests
// and random ids; nothing that anybody sent becomes part of one, and a store that
// keeps files refuses whatever could mean something to a file system.
func ValidKey(key string) bool {
	if key == "" || len(key) > maxKey {
		return false
	}
	for element := range strings.SplitSeq(key, "/") {
		if element == "" || strings.ContainsFunc(element, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
		}) {
			return false
		}
	}
	return true
}
