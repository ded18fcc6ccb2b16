// Package blobstore keeps the contents of files in a bucket of gocloud.dev/blob:
// a folder in this version. It passes the suite in blobstoretest.
package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/gcerrors"

	"cofferdam.dev/services/filebroker/internal/files"
)

const (
	folderMode = 0o700
	fileMode   = 0o600
)

// Bucket keeps blobs.
type Bucket struct{ bucket *blob.Bucket }

var _ files.Blobs = (*Bucket)(nil)

// CheckURL says whether Open knows the kind of URL.
func CheckURL(raw string) error {
	_, err := folder(raw)
	return err
}

// folder of a file URL.
func folder(raw string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", errors.New("not a URL")
	case u.Scheme != fileblob.Scheme:
		return "", fmt.Errorf("scheme %q is not linked into this binary: use file:///folder", u.Scheme)
	case u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !filepath.IsAbs(u.Path) || filepath.Clean(u.Path) == "/":
		return "", errors.New("a folder has the form file:///absolute/path, without anything else")
	}
	return filepath.Clean(u.Path), nil
}

// Open opens the bucket at a URL. A folder is made if it is not there; it is for
// its owner alone (mode 0700), and one that others can enter is refused.
// Temporary files stand beside the final ones, so that a rename is atomic.
func Open(raw string) (*Bucket, error) {
	dir, err := folder(raw)
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	if err := private(dir); err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	b, err := fileblob.OpenBucket(dir, &fileblob.Options{
		DirFileMode: folderMode, NoTempDir: true, Metadata: fileblob.MetadataDontWrite,
	})
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	return &Bucket{bucket: b}, nil
}

func private(dir string) error {
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s has mode %04o and holds what people sent; run chmod 700 on it", dir, info.Mode().Perm())
	}
	return nil
}

// Close closes the bucket.
func (b *Bucket) Close() error { return b.bucket.Close() }

// Check asks whether the bucket answers.
func (b *Bucket) Check(ctx context.Context) error {
	ok, err := b.bucket.IsAccessible(ctx)
	if err == nil && !ok {
		err = errors.New("bucket is not accessible")
	}
	return err
}

// Create implements [files.Blobs].
func (b *Bucket) Create(ctx context.Context, key string) (files.BlobWriter, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &writer{cancel: cancel}
	var err error
	w.w, err = b.bucket.NewWriter(ctx, key, &blob.WriterOptions{
		ContentType:                 "application/octet-stream",
		DisableContentTypeDetection: true,
		BeforeWrite: func(as func(any) bool) error {
			if !as(&w.file) {
				return nil // another driver has no file
			}
			return w.file.Chmod(fileMode)
		},
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("create blob: %w", err)
	}
	return w, nil
}

// Open implements [files.Blobs].
func (b *Bucket) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := b.bucket.NewReader(ctx, key, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, errors.Join(files.ErrNoBlob, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	return r, nil
}

// Delete implements [files.Blobs].
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := b.bucket.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return fmt.Errorf("delete blob: %w", err)
	}
	return nil
}
