package mcpfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Bounds of one answer.
const (
	maxFileBytes = 1 << 20
	maxEntries   = 2000
	maxPathBytes = 4096
)

// What a client is told. It names no path: the client knows what it asked for,
// and not where the folder lies.
var (
	errPath      = errors.New("the path must be relative to the folder, such as notes/today.txt, and stay inside it")
	errMissing   = errors.New("no such file or folder")
	errNotFolder = errors.New("this is not a folder; use " + ToolRead + " for a file")
	errNotFile   = errors.New("this is not a regular file; use " + ToolList + " for a folder")
	errTooLarge  = fmt.Errorf("the file is larger than %d bytes", maxFileBytes)
	errNotText   = errors.New("the file is not UTF-8 text")
	errRefused   = errors.New("the file or folder cannot be read")
)

// folder is what is served.
type folder struct{ root *os.Root }

// list gives a line for each entry, in the order of their names.
func (f folder) list(ctx context.Context, name string) (text string, err error) {
	dir, info, err := f.open(ctx, name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if !info.IsDir() {
		return "", errNotFolder
	}
	entries, err := dir.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", errRefused
	}
	cut := len(entries) > maxEntries
	entries = entries[:min(len(entries), maxEntries)]
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	lines := make([]string, 0, len(entries)+1)
	for _, e := range entries {
		kind := "[FILE] "
		if e.IsDir() {
			kind = "[DIR] "
		}
		lines = append(lines, kind+oneLine(e.Name()))
	}
	if cut {
		lines = append(lines, fmt.Sprintf("(only %d entries are shown)", maxEntries))
	}
	return strings.Join(lines, "\n"), nil
}

// read gives a whole text file.
func (f folder) read(ctx context.Context, name string) (text string, err error) {
	file, info, err := f.open(ctx, name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if !info.Mode().IsRegular() {
		return "", errNotFile
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	switch {
	case err != nil:
		return "", errRefused
	case len(data) > maxFileBytes:
		return "", errTooLarge
	case !utf8.Valid(data):
		return "", errNotText
	}
	return string(data), nil
}

// open opens what the name means inside the folder. O_NONBLOCK: a named pipe
// must not hold the server until somebody writes to it.
func (f folder) open(ctx context.Context, name string) (*os.File, fs.FileInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	clean, err := inside(name)
	if err != nil {
		return nil, nil, err
	}
	file, err := f.root.OpenFile(clean, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, errMissing
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENXIO):
		return nil, nil, errRefused
	case err != nil: // a link that leads out, a part of the path that is no folder
		return nil, nil, errPath
	}
	info, err := file.Stat()
	if err != nil {
		return nil, nil, errors.Join(errRefused, file.Close())
	}
	return file, info, nil
}

// inside refuses what os.Root would refuse as well, so that the answer says why.
func inside(name string) (string, error) {
	if name == "" {
		return ".", nil
	}
	if len(name) > maxPathBytes || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return "", errPath
	}
	clean := path.Clean(name)
	if !fs.ValidPath(clean) { // absolute, or out of the folder
		return "", errPath
	}
	return clean, nil
}

// oneLine keeps a name from ending its line and beginning another.
func oneLine(name string) string {
	if quoted := strconv.Quote(name); quoted[1:len(quoted)-1] != name {
		return quoted
	}
	return name
}
