// Package agentfiles has the skills and files of agents: what a version names of them,
// and where an operator has them.
//
// A version names bytes by their SHA-256, so that it never changes with the folder that
// they came from.
package agentfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"cofferdam.dev/pkg/blob"
)

// Bounds of what an agent has. They are those of the manifests that a worker takes.
const (
	// MaxFiles of all skills together, and of all files.
	MaxFiles = 256
	// MaxFileBytes of one file.
	MaxFileBytes = 8 << 20
	// MaxBytes of everything.
	MaxBytes = 64 << 20
	maxDepth = 8
)

var (
	namePattern   = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$`)
	digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	mimePattern   = regexp.MustCompile(`^[a-z0-9.+-]{1,64}/[a-z0-9.+-]{1,128}$`)
)

const (
	nameRule  = "1 to 100 characters of [A-Za-z0-9._-], no dot first"
	depthRule = "at most 8 names between slashes"
)

// File is one file that a version of an agent names.
type File struct {
	// Path below skills/ or files/ of the workspace.
	Path string `json:"path"`
	// SHA256 of the content in hexadecimal, and Size in bytes.
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	// MIMEType is for display; empty is application/octet-stream.
	MIMEType string `json:"mime_type,omitzero"`
}

// Content that the file names; it has passed Check.
func (f File) Content() blob.Content {
	c := blob.Content{Size: f.Size}
	_, _ = hex.Decode(c.SHA256[:], []byte(f.SHA256)) // its pattern was checked
	return c
}

// Check says what is wrong with the files of an agent, each error by its field.
func Check(skills, files []File) error {
	errs := []error{check("skills", skills), check("files", files)}
	var all int64
	for _, f := range slices.Concat(skills, files) {
		all += min(max(f.Size, 0), MaxFileBytes+1)
	}
	if all > MaxBytes {
		errs = append(errs, fmt.Errorf("skills, files: %d bytes together, at most 64 MiB", all))
	}
	for i, f := range skills {
		if !strings.Contains(f.Path, "/") {
			errs = append(errs, fmt.Errorf("skills[%d].path: NAME/SKILL.md, or what lies beside it", i))
		}
	}
	return errors.Join(errs...)
}

func check(field string, files []File) error {
	if len(files) > MaxFiles {
		return fmt.Errorf("%s: %d files, at most %d", field, len(files), MaxFiles)
	}
	var errs []error
	taken := places{}
	for i, f := range files {
		for _, rule := range []struct {
			ok          bool
			field, text string
		}{
			{validPath(f.Path), "path", depthRule + ", each of " + nameRule},
			{taken.add(f.Path), "path", "another one has it, or is a folder of this name; cases do not count"},
			{digestPattern.MatchString(f.SHA256), "sha256", "64 lower-case hexadecimal digits"},
			{f.Size >= 0 && f.Size <= MaxFileBytes, "size", "0 to 8 MiB"},
			{f.MIMEType == "" || mimePattern.MatchString(f.MIMEType), "mime_type", "empty, or type/subtype in lower case"},
		} {
			if !rule.ok {
				errs = append(errs, fmt.Errorf("%s[%d].%s: %s", field, i, rule.field, rule.text))
			}
		}
	}
	return errors.Join(errs...)
}

func validPath(p string) bool {
	names := strings.Split(p, "/")
	for _, name := range names {
		if !namePattern.MatchString(name) {
			return false
		}
	}
	return len(names) <= maxDepth
}

// places are paths that are taken; true is a file. Where a worker puts them cases may not
// count.
type places map[string]bool

// add reports whether nothing stood in the way.
func (t places) add(p string) bool {
	p = strings.ToLower(p)
	if _, there := t[p]; there {
		return false
	}
	for dir := path.Dir(p); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if t[dir] {
			return false
		}
		t[dir] = false
	}
	t[p] = true
	return true
}

func hexOf(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:]) }
