package manifest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// Modes of what is materialized: nobody writes it, who runs as the worker
// included, unless he means to.
const (
	fileMode   = 0o444
	folderMode = 0o555
	// building is the mode of folders until all files are there.
	building = 0o700
)

// Reader gives the content behind a read handle, with the SHA-256 checked that
// its broker has.
type Reader interface {
	Read(ctx context.Context, f harness.File, maxBytes int) ([]byte, error)
}

// Materialized is what stands in the workspace.
type Materialized struct {
	// Files in the order of the manifests.
	Files []harness.Materialized

	workspace string
}

// Materialize writes the manifests below the workspace. It fails as a whole, and
// then leaves nothing behind. The workspace is fresh: what stands there under the
// same names is an error. Errors: those of Check; those of the handles;
// persistence_failed for content that is not what the manifest says, or that
// cannot be written; sandbox_not_ready without a workspace.
func Materialize(ctx context.Context, workspace string, m Manifests, r Reader) (*Materialized, error) {
	const op = "manifest.Materialize"
	done := &Materialized{workspace: workspace}
	if m.Empty() {
		return done, nil
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	if workspace == "" {
		return nil, fault.New(fault.SandboxNotReady, op, fault.Detail("skills, files: this worker has no workspace"))
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, fault.Wrap(err, fault.SandboxNotReady, op)
	}
	defer func() { _ = root.Close() }() // only names were looked up in it
	for _, part := range []struct {
		folder string
		files  []File
	}{{Skills, m.Skills}, {Files, m.Files}} {
		if len(part.files) == 0 {
			continue
		}
		err := root.Mkdir(part.folder, building)
		if err == nil {
			err = done.write(ctx, root, part.folder, part.files, r)
		} else { // it is not ours to remove
			err = fault.Wrap(err, fault.PersistenceFailed, op)
		}
		if err != nil {
			return nil, errors.Join(err, done.Remove())
		}
	}
	return done, nil
}

// write fills one folder and closes it to further writing.
func (m *Materialized) write(ctx context.Context, root *os.Root, folder string, files []File, r Reader) error {
	for _, f := range files {
		at := path.Join(folder, f.Path)
		// Named before it is there: what was begun is removed too.
		m.Files = append(m.Files, harness.Materialized{Path: at, MIMEType: f.MIMEType, Size: f.Size})
		if err := writeFile(ctx, root, at, f, r); err != nil {
			return err
		}
	}
	if err := closeFolders(root, folder); err != nil {
		return fault.Wrap(err, fault.PersistenceFailed, "manifest.write")
	}
	return nil
}

func writeFile(ctx context.Context, root *os.Root, at string, f File, r Reader) (err error) {
	const op = "manifest.write"
	content, err := r.Read(ctx, harness.File{Handle: f.Handle, MIMEType: f.MIMEType, Size: f.Size}, int(f.Size)) //nolint:gosec // Check has bounded it
	if err != nil {
		return fault.From(err, op)
	}
	if uint64(len(content)) != f.Size || sha256.Sum256(content) != f.SHA256 {
		return fault.Wrap(fmt.Errorf("file of %d bytes is not what the manifest says", len(content)), fault.PersistenceFailed, op)
	}
	defer func() {
		if err != nil {
			err = fault.Wrap(err, fault.PersistenceFailed, op)
		}
	}()
	if err := root.MkdirAll(path.Dir(at), building); err != nil {
		return err
	}
	out, err := root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = out.Write(content)
	// Whatever the umask took away.
	return errors.Join(err, out.Chmod(fileMode), out.Close())
}

// closeFolders takes the right to write from a folder and all below it.
func closeFolders(root *os.Root, folder string) error {
	return eachFolder(root, folder, func(name string) error { return root.Chmod(name, folderMode) })
}

// Remove removes what was materialized. It is harmless to repeat.
func (m *Materialized) Remove() error {
	if m == nil || len(m.Files) == 0 {
		return nil
	}
	root, err := os.OpenRoot(m.workspace)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it went with the workspace
	}
	if err != nil {
		return fault.Wrap(err, fault.PersistenceFailed, "manifest.Remove")
	}
	defer func() { _ = root.Close() }() // only names were looked up in it
	var errs []error
	for _, folder := range []string{Skills, Files} {
		if !m.has(folder) {
			continue
		}
		opened := eachFolder(root, folder, func(name string) error { return root.Chmod(name, building) })
		errs = append(errs, opened, root.RemoveAll(folder))
	}
	if err := errors.Join(errs...); err != nil {
		return fault.Wrap(err, fault.PersistenceFailed, "manifest.Remove")
	}
	m.Files = nil
	return nil
}

// has reports whether anything was begun in the folder.
func (m *Materialized) has(folder string) bool {
	for _, f := range m.Files {
		if len(f.Path) > len(folder) && f.Path[:len(folder)+1] == folder+"/" {
			return true
		}
	}
	return false
}

// eachFolder visits a folder and all below it, the outer ones first: who opens
// them has to get in.
func eachFolder(root *os.Root, folder string, visit func(string) error) error {
	err := fs.WalkDir(root.FS(), folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return nil
		}
		return visit(name)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
