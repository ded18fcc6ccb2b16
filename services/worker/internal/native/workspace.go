package native

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// slice reads a part of a file of the turn, or of one that was materialized.
// Nothing else has a path here.
func (r *run) slice(ctx context.Context, a readArgs) (part []byte, size int64, err error) {
	if n, ok := strings.CutPrefix(a.Path, turnFolder); ok {
		i, err := strconv.Atoi(n)
		if err != nil || i < 1 || i > len(r.files) {
			return nil, 0, noFile()
		}
		content, err := r.Files.Read(ctx, r.files[i-1], maxTurnFile)
		if err != nil {
			return nil, 0, err
		}
		size := int64(len(content))
		from := min(a.Offset, size)
		return content[from:min(from+int64(a.Limit), size)], size, nil
	}
	known := slices.ContainsFunc(r.construction.Manifest, func(m harness.Materialized) bool { return m.Path == a.Path })
	if !known || r.workspace == "" {
		return nil, 0, noFile()
	}
	return r.materialized(a)
}

// materialized reads within the workspace: no link in it leads out.
func (r *run) materialized(a readArgs) (part []byte, size int64, err error) {
	const op = "native.read_file"
	root, err := os.OpenRoot(r.workspace)
	if err != nil {
		return nil, 0, fault.Wrap(err, fault.DependencyUnavailable, op)
	}
	defer func() { _ = root.Close() }() // only read
	info, err := root.Stat(a.Path)
	if err != nil || !info.Mode().IsRegular() { // a pipe would be waited for
		return nil, 0, fault.Wrap(err, fault.NotFound, op)
	}
	f, err := root.Open(a.Path)
	if err != nil {
		return nil, 0, fault.Wrap(err, fault.NotFound, op)
	}
	defer func() { _ = f.Close() }() // only read
	part = make([]byte, a.Limit)
	n, err := f.ReadAt(part, a.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, fault.Wrap(err, fault.DependencyUnavailable, op)
	}
	return part[:n], info.Size(), nil
}

func noFile() error {
	return fault.New(fault.NotFound, "native.read_file", fault.Detail("path: none that list_files names"))
}
