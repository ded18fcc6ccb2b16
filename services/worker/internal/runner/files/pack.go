//go:build linux

package files

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/runnerproto"
)

// windowSize of the compression, in bytes: what packing and unpacking hold.
const windowSize = 1 << 20

// Pack writes the program's files that the patterns choose as a zstd-compressed
// tar archive of at most maxBytes, in the order of their paths. Files, folders and
// links are in it; what is the runner's, and sockets, pipes and devices, are not.
// The same files make the same bytes.
//
// Nothing may write meanwhile: a file that changes its size under the hand is a
// protocol error.
func Pack(ctx context.Context, root *os.Root, o Owner, p Patterns, maxBytes int64, w io.Writer) error {
	if err := p.Validate(); err != nil {
		return err
	}
	z, err := zstd.NewWriter(&capped{w: w, left: maxBytes},
		zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(windowSize))
	if err != nil {
		return failed(err, "the archive")
	}
	k := packer{ctx: ctx, root: root, owner: o, patterns: p, tar: tar.NewWriter(z)}
	err = k.folder("")
	if err == nil {
		err = k.tar.Close()
	}
	if err == nil {
		err = z.Close()
	}
	return failed(err, "the archive")
}

type packer struct {
	ctx      context.Context //nolint:containedctx // of one Pack
	root     *os.Root
	owner    Owner
	patterns Patterns
	tar      *tar.Writer
	seen     int
	bytes    int64
}

func tooLarge(detail string) error {
	return runnerproto.Fail(nil, runnerproto.TooLarge, detail)
}

// folder archives what is wanted of a folder, "" for the root.
func (k *packer) folder(name string) error {
	names, err := k.names(name)
	if err != nil {
		return err
	}
	for _, n := range names {
		p := under(name, n)
		in, below := k.patterns.wanted(p)
		if !in && !below {
			continue
		}
		if !Local(p) {
			return tooLarge("a path is too long or too deep")
		}
		info, err := k.root.Lstat(p)
		if err != nil {
			return err
		}
		if in {
			if err := k.entry(p, info); err != nil {
				return err
			}
		}
		if info.IsDir() && below {
			if err := k.folder(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// names of a folder, in order. They are bounded together with all others.
func (k *packer) names(folder string) ([]string, error) {
	dir := k.root
	if folder != "" {
		sub, err := k.root.OpenRoot(folder)
		if err != nil {
			return nil, err
		}
		defer func() { _ = sub.Close() }()
		dir = sub
	}
	var names []string
	_, err := each(k.ctx, dir, func(d fs.DirEntry) error {
		if k.seen++; k.seen > runnerproto.MaxEntries {
			return tooLarge("too many files")
		}
		names = append(names, d.Name())
		return nil
	})
	slices.Sort(names)
	return names, err
}

func (k *packer) entry(name string, info fs.FileInfo) error {
	h := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch info.Mode().Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return k.tar.WriteHeader(h)
	case fs.ModeSymlink:
		target, err := k.root.Readlink(name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return k.tar.WriteHeader(h)
	case 0:
		if k.owner.Apart && owner(info) != k.owner.UID {
			return nil // made read-only by the worker, which makes it again
		}
		h.Typeflag = tar.TypeReg
		return k.file(h, info)
	default:
		return nil
	}
}

func (k *packer) file(h *tar.Header, listed fs.FileInfo) error {
	// Were it a pipe by now, opening it would wait for the program.
	f, err := k.root.OpenFile(h.Name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || !os.SameFile(listed, info) {
		return runnerproto.Fail(nil, runnerproto.BrokenOrder, "a file was replaced while it was archived")
	}
	h.Size = info.Size()
	if k.bytes += h.Size; k.bytes > runnerproto.MaxUnpacked || h.Size > runnerproto.MaxUnpacked {
		return tooLarge("the files are too large")
	}
	if err := k.tar.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyN(k.tar, &cancelled{ctx: k.ctx, r: f}, h.Size)
	if errors.Is(err, io.EOF) && n < h.Size {
		return runnerproto.Fail(nil, runnerproto.BrokenOrder, "a file became shorter while it was archived")
	}
	return err
}

// capped fails what goes beyond left.
type capped struct {
	w    io.Writer
	left int64
}

func (c *capped) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		return 0, tooLarge("the archive is larger than allowed")
	}
	return c.w.Write(p)
}

// cancelled ends reading with its context.
type cancelled struct {
	ctx context.Context //nolint:containedctx // of one copy
	r   io.Reader
}

func (c *cancelled) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

func owner(info fs.FileInfo) int {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return int(s.Uid)
}
