//go:build linux

package runner

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime/debug"

	"cofferdam.dev/services/worker/internal/runner/files"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

// write makes a file of what comes on the stream.
func (w *world) write(r *runnerproto.Write, stream net.Conn) error {
	root, rel, ok := w.within(r.Path)
	if !ok || root == w.temp || rel == "." {
		return runnerproto.Fail(nil, runnerproto.Invalid, "the path is not one below home or workspace")
	}
	f := files.File{Path: rel, Executable: r.Executable, ReadOnly: r.ReadOnly, TheirRoot: root == w.workspace}
	return files.Write(root, w.owner, f, runnerproto.NewChunkReader(stream))
}

// archive writes files of home to the stream, while nothing runs.
func (w *world) archive(ctx context.Context, r *runnerproto.Archive, stream io.Writer) (err error) {
	if r.MaxBytes <= 0 {
		return runnerproto.Fail(nil, runnerproto.Invalid, "an archive needs a bound")
	}
	done, err := w.hush(ctx)
	if err != nil {
		return err
	}
	defer debug.FreeOSMemory() // of the compression; the next one is a turn away
	out := runnerproto.NewChunkWriter(stream)
	p := files.Patterns{Include: r.Include, Exclude: r.Exclude}
	err = files.Pack(ctx, w.home, w.owner, p, r.MaxBytes, out)
	if err = errors.Join(err, done()); err != nil { // what ran meanwhile may have written
		return err
	}
	return out.Close()
}

// restore unpacks what comes on the stream into home, while nothing runs.
func (w *world) restore(ctx context.Context, stream io.Reader) error {
	done, err := w.hush(ctx)
	if err != nil {
		return err
	}
	defer debug.FreeOSMemory()
	err = files.Unpack(ctx, w.home, w.owner, runnerproto.NewChunkReader(stream))
	return errors.Join(err, done())
}
