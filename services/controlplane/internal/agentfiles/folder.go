package agentfiles

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"cofferdam.dev/pkg/blob"
)

// skillFile is what makes a folder a skill.
const skillFile = "SKILL.md"

// Folder is where an operator has the skills and files of agents.
type Folder struct{ path string }

// In is the folder at a path.
func In(path string) Folder { return Folder{path} }

// Found is a file of a folder.
type Found struct {
	File

	// entry that it belongs to, and its name below it; "." is the entry itself.
	entry, name string
}

// Skills reads skills: each entry is a folder below f with a SKILL.md and whatever lies
// beside it.
func (f Folder) Skills(entries []string) ([]Found, error) {
	return f.read("skills", entries, func(w *walk, isFolder bool) error {
		if !isFolder {
			return fmt.Errorf("%q is a file; a skill is a folder with a %s", w.entry, skillFile)
		}
		if err := w.folder("."); err != nil {
			return err
		}
		for _, found := range w.found {
			if found.name == skillFile {
				return nil
			}
		}
		return fmt.Errorf("%q has no %s, with which a skill begins", w.entry, skillFile)
	})
}

// Files reads files: each entry is one, or a folder of files, below f.
func (f Folder) Files(entries []string) ([]Found, error) {
	return f.read("files", entries, func(w *walk, isFolder bool) error {
		if isFolder {
			return w.folder(".")
		}
		return w.file(".")
	})
}

func (f Folder) read(field string, entries []string, each func(w *walk, isFolder bool) error) (out []Found, err error) {
	if len(entries) == 0 {
		return nil, nil
	}
	root, err := os.OpenRoot(f.path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	defer func() { _ = root.Close() }() // only read
	var errs []error
	names := map[string]bool{}
	for i, entry := range entries {
		w := &walk{outer: root, entry: path.Clean(entry), left: MaxFiles - len(out)}
		err := w.open(entry)
		if name := strings.ToLower(w.base()); err == nil && names[name] {
			err = fmt.Errorf("another entry has the name %q too; rename one", w.base())
		} else {
			names[name] = true
		}
		if err == nil {
			err = each(w, w.root != nil)
		}
		w.close()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", field, i, explained(err)))
			continue
		}
		out = append(out, w.found...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// Open opens what was found, again.
func (f Folder) Open(found Found) (io.ReadCloser, error) {
	root, err := os.OpenRoot(f.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // what is open stays so
	w := &walk{outer: root, entry: found.entry}
	defer w.close()
	if err := w.open(found.entry); err != nil {
		return nil, err
	}
	file, _, err := w.regular(found.name)
	return file, err
}

// walk reads one entry.
type walk struct {
	outer *os.Root
	entry string
	// root is the entry itself where it is a folder: no link in it leads out of it.
	root  *os.Root
	left  int
	found []Found
}

func (w *walk) base() string { return path.Base(w.entry) }

func (w *walk) open(entry string) error {
	if !filepath.IsLocal(entry) || strings.Contains(entry, `\`) || w.entry == "." {
		return fmt.Errorf("%.200q is no path within the folder that it is relative to, such as skills/pdf", entry)
	}
	if !namePattern.MatchString(w.base()) {
		return fmt.Errorf("%.200q: its name has %s; rename it", entry, nameRule)
	}
	info, err := w.outer.Stat(w.entry)
	if err == nil && info.IsDir() {
		w.root, err = w.outer.OpenRoot(w.entry)
	}
	return err
}

func (w *walk) close() {
	if w.root != nil {
		_ = w.root.Close() // only read
	}
}

// folder reads a folder of the entry and all below it, in the order of names. What has a
// dot first is left out: editors, version control and mounted volumes keep their own there.
func (w *walk) folder(at string) error {
	entries, err := fs.ReadDir(w.root.FS(), at)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(at, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		switch {
		case !namePattern.MatchString(e.Name()):
			return fmt.Errorf("%.200q: a name has %s; rename it", path.Join(w.entry, name), nameRule)
		case strings.Count(w.path(name), "/") >= maxDepth:
			return fmt.Errorf("%.200q: %s, from %s on", path.Join(w.entry, name), depthRule, w.base())
		case e.IsDir():
			err = w.folder(name)
		default:
			err = w.file(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// path is that in the workspace.
func (w *walk) path(name string) string { return path.Join(w.base(), name) }

func (w *walk) file(name string) error {
	if len(w.found) >= w.left {
		return fmt.Errorf("more than %d files, with those of the entries before it; leave some out", MaxFiles)
	}
	f, size, err := w.regular(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	var head beginning
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(sum, &head), io.LimitReader(f, MaxFileBytes+1))
	switch {
	case err != nil:
		return err
	case n != size:
		return fmt.Errorf("%q changed while it was read; start again", path.Join(w.entry, name))
	}
	found := File{Path: w.path(name), SHA256: hexOf([sha256.Size]byte(sum.Sum(nil))), Size: n}
	found.MIMEType = typeOf(found.Path, head)
	w.found = append(w.found, Found{found, w.entry, name})
	return nil
}

// regular opens a regular file of at most MaxFileBytes. A pipe would be waited for.
func (w *walk) regular(name string) (*os.File, int64, error) {
	root, at := w.root, name
	if root == nil {
		root, at = w.outer, w.entry
	}
	f, err := root.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	shown := path.Join(w.entry, name)
	switch {
	case err != nil:
	case info.IsDir():
		err = fmt.Errorf("%q is a link to a folder, which is not followed; put the folder there", shown)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%q is no regular file; take it out", shown)
	case info.Size() > MaxFileBytes:
		err = fmt.Errorf("%q has %d bytes, at most 8 MiB", shown, info.Size())
	default:
		return f, info.Size(), nil
	}
	_ = f.Close() // only read
	return nil, 0, err
}

// explained says what an error of the file system means here.
func explained(err error) error {
	var at *fs.PathError
	switch {
	case !errors.As(err, &at):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no %q: %w", at.Path, at.Err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%q cannot be read by the control plane's user: %w", at.Path, at.Err)
	}
	return fmt.Errorf("%q: %w; no link may lead out of the entry", at.Path, at.Err)
}

// Contents are the distinct ones of what was found.
func Contents(found []Found) map[blob.Content]Found {
	out := make(map[blob.Content]Found, len(found))
	for _, f := range found {
		out[f.Content()] = f
	}
	return out
}
