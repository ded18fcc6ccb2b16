//go:build linux

package files

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"cofferdam.dev/services/worker/internal/runnerproto"
)

// maxWindow bounds what an archive can make the decoder hold, in bytes.
const maxWindow = 8 << 20

// maxStream bounds the archive before it is taken apart, in bytes: content, and a
// few blocks for each entry.
const maxStream = runnerproto.MaxUnpacked + runnerproto.MaxEntries*(8<<10)

// Unpack makes the files of an archive below root, as the program. Whatever
// stands in the archive stays there: it takes files, folders and links only, under
// plain relative names, and no more of them than Pack makes. What is the runner's
// stays as it is. Errors: protocol for what Pack does not make, state_too_large,
// sandbox_limit where the world has no more room; what was made until then stays.
func Unpack(ctx context.Context, root *os.Root, o Owner, r io.Reader) error {
	z, err := zstd.NewReader(&cancelled{ctx: ctx, r: r},
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return failed(err, "the archive")
	}
	defer z.Close()
	return o.as(func() error { return untar(root, z) })
}

func untar(root *os.Root, r io.Reader) error {
	content := &bounded{r: r, left: maxStream}
	u := unpacker{root: root, tar: tar.NewReader(content)}
	if err := u.all(); err != nil {
		return err
	}
	// Only at its end is the checksum compared.
	if _, err := io.Copy(io.Discard, content); err != nil {
		return failed(broken(err), "the archive")
	}
	return u.finish()
}

type unpacker struct {
	root    *os.Root
	tar     *tar.Reader
	entries int
	bytes   int64
	// folders get their modes and times last: one that is read-only, or of yesterday,
	// has to be filled first.
	folders []*tar.Header
}

func malformed(err error, detail string) error {
	return runnerproto.Fail(err, runnerproto.BrokenOrder, detail)
}

func (u *unpacker) all() error {
	for {
		h, err := u.tar.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return failed(broken(err), "the archive")
		}
		if u.entries++; u.entries > runnerproto.MaxEntries {
			return tooLarge("too many files")
		}
		if err := u.entry(h); err != nil {
			return failed(err, "a file of the archive")
		}
	}
}

// broken is an error of the stream, unless it says more.
func broken(err error) error {
	var known *runnerproto.Error
	if errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return malformed(err, "the archive is damaged")
}

func (u *unpacker) entry(h *tar.Header) error {
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	if !Local(name) {
		return malformed(nil, "a name in the archive leads out of its folder")
	}
	h.Name = name
	switch h.Typeflag {
	case tar.TypeDir:
		return u.folder(h)
	case tar.TypeSymlink:
		return u.link(h)
	case tar.TypeReg:
		return u.file(h)
	default:
		return malformed(nil, "the archive has an entry that is no file, folder or link")
	}
}

func (u *unpacker) folder(h *tar.Header) error {
	err := u.root.MkdirAll(h.Name, modeFolder)
	if err != nil {
		if info, lerr := u.root.Lstat(h.Name); lerr == nil && !info.IsDir() {
			return malformed(err, "a folder of the archive stands in the place of a file")
		}
		return err
	}
	u.folders = append(u.folders, h)
	return nil
}

func (u *unpacker) link(h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) > runnerproto.MaxPath || strings.Contains(h.Linkname, "\x00") {
		return malformed(nil, "a link of the archive has no target")
	}
	free, err := u.clear(h.Name)
	if err != nil || !free {
		return err
	}
	return u.root.Symlink(h.Linkname, h.Name)
}

func (u *unpacker) file(h *tar.Header) error {
	if u.bytes += h.Size; h.Size > runnerproto.MaxUnpacked || u.bytes > runnerproto.MaxUnpacked {
		return tooLarge("the files are too large")
	}
	free, err := u.clear(h.Name)
	if err != nil || !free {
		return err
	}
	f, err := u.root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, modeUnwanted)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, &source{u.tar})
	if err := errors.Join(err, f.Chmod(permissions(h)), f.Close()); err != nil {
		return err
	}
	return u.root.Chtimes(h.Name, time.Time{}, h.ModTime)
}

// clear makes room for an entry. It is not free where something stands that the
// program may not take away: that is the runner's.
func (u *unpacker) clear(name string) (free bool, err error) {
	if err := u.root.MkdirAll(path.Dir(name), modeFolder); err != nil {
		return false, err
	}
	info, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if info.IsDir() {
		return false, malformed(nil, "a file of the archive stands in the place of a folder")
	}
	err = u.root.Remove(name)
	if errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	return err == nil, err
}

func (u *unpacker) finish() error {
	for _, h := range slices.Backward(u.folders) {
		err := u.root.Chtimes(h.Name, time.Time{}, h.ModTime)
		err = errors.Join(err, u.root.Chmod(h.Name, permissions(h)))
		if err != nil && !errors.Is(err, fs.ErrPermission) { // a folder that is the runner's
			return failed(err, "a folder of the archive")
		}
	}
	return nil
}

// permissions are those of the owner, group and others, and no more.
func permissions(h *tar.Header) fs.FileMode {
	return fs.FileMode(h.Mode) & fs.ModePerm //nolint:gosec // nine bits
}

// source tells errors of the archive from those of the file it goes to.
type source struct{ r io.Reader }

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = broken(err)
	}
	return n, err
}
