// Package blobstore has the back ends of blob stores. Each passes the suite in
// blobtest.
package blobstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"cofferdam.dev/pkg/blob"
)

const folderScheme = "file"

// Store is an open store.
type Store interface {
	blob.Store
	// Check asks whether the store answers.
	Check(ctx context.Context) error
	// Close gives up what Open took.
	Close() error
}

// CheckURL says whether Open knows the kind of URL.
func CheckURL(raw string) error {
	_, err := parse(raw)
	return err
}

// parse gives the folder of a URL.
func parse(raw string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", errors.New("not a URL")
	case u.Scheme != folderScheme:
		return "", fmt.Errorf("scheme %q is not linked into this binary: use file:///folder", u.Scheme)
	case u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !filepath.IsAbs(u.Path) || filepath.Clean(u.Path) == "/":
		return "", errors.New("a folder has the form file:///absolute/path, without anything else")
	}
	return filepath.Clean(u.Path), nil
}

// Open opens the store at a URL: file:///absolute/path, a folder that is made if
// it is not there. It is for its owner alone (mode 0700), and one that others can
// enter is refused.
func Open(_ context.Context, raw string) (Store, error) {
	dir, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	f, err := openFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	return f, nil
}
