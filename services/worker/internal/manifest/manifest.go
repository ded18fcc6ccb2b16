// Package manifest materializes the skill and file manifests of a binding: what
// stands behind read handles becomes read-only files of the workspace, before the
// harness is built.
//
// A name here comes from the control plane, and the content from a broker; both
// are checked as if they did not. Nothing is written but below the workspace, and
// a manifest is materialized whole or not at all.
package manifest

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"cofferdam.dev/pkg/fault"
)

// Bounds of the manifests of one binding.
const (
	// MaxFiles of a manifest.
	MaxFiles = 256
	// MaxFileBytes of one file.
	MaxFileBytes = 8 << 20
	// MaxBytes of all files of all manifests.
	MaxBytes = 64 << 20
	// maxDepth and maxName bound a path: names between slashes, and characters of
	// each.
	maxDepth = 8
	maxName  = 100
)

// Folders of the workspace that manifests are materialized under.
const (
	Skills = "skills"
	Files  = "files"
)

// File is one file of a manifest.
type File struct {
	// Path is relative, with "/" between at most 8 names of at most 100 characters
	// of [A-Za-z0-9._-], none of which begins with a dot.
	Path   string
	Handle string
	// Size in bytes and SHA256 of the content.
	Size     uint64
	SHA256   [sha256.Size]byte
	MIMEType string
}

// Manifests of one binding.
type Manifests struct{ Skills, Files []File }

// Empty reports whether there is nothing to materialize.
func (m Manifests) Empty() bool { return len(m.Skills) == 0 && len(m.Files) == 0 }

// Check finds what makes manifests unusable, whatever the contents are. Errors:
// invalid_request; request_too_large for more bytes than MaxBytes.
func (m Manifests) Check() error {
	var bytes uint64
	for name, files := range map[string][]File{Skills: m.Skills, Files: m.Files} {
		n, err := checkFiles(name, files)
		if err != nil {
			return err
		}
		bytes += n
	}
	if bytes > MaxBytes {
		return fault.New(fault.RequestTooLarge, "manifest.Check", fault.Detail("skills, files: together at most 64 MiB"))
	}
	return nil
}

func checkFiles(field string, files []File) (bytes uint64, err error) {
	refused := func(code fault.Code, rule string) error {
		return fault.New(code, "manifest.Check", fault.Detail(field+rule))
	}
	if len(files) > MaxFiles {
		return 0, refused(fault.InvalidRequest, fmt.Sprintf(": at most %d", MaxFiles))
	}
	// A file system may not tell cases apart, and what reads the files may not
	// either: two paths that differ so are one.
	const folder, file = 1, 2
	taken := make(map[string]int)
	for _, f := range files {
		names := strings.Split(strings.ToLower(f.Path), "/")
		if len(names) > maxDepth || !validNames(strings.Split(f.Path, "/")) {
			return 0, refused(fault.InvalidRequest, "[].path: at most 8 names of [A-Za-z0-9._-], none with a dot first")
		}
		for i := range names {
			at, kind := strings.Join(names[:i+1], "/"), folder
			if i == len(names)-1 {
				kind = file
			}
			if stands, ok := taken[at]; ok && (stands == file || kind == file) {
				return 0, refused(fault.InvalidRequest, "[].path: two of them collide")
			}
			taken[at] = kind
		}
		if f.Size > MaxFileBytes {
			return 0, refused(fault.RequestTooLarge, "[].size: at most 8 MiB")
		}
		bytes += f.Size
	}
	return bytes, nil
}

func validNames(names []string) bool {
	for _, name := range names {
		if name == "" || len(name) > maxName || name[0] == '.' {
			return false
		}
		for _, r := range name {
			switch {
			case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
			default:
				return false
			}
		}
	}
	return true
}
