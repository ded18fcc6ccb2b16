package runnerclient

import (
	"context"
	"io"
	"net"
	"time"

	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

// KillAll implements [hosted.World]. Grace is at most 5 minutes. The program is
// Done when it returns without error.
func (w *World) KillAll(ctx context.Context, grace time.Duration) error {
	grace = min(max(grace, 0), runnerproto.MaxGrace)
	const op = "runnerclient.KillAll"
	if _, err := w.do(ctx, op, &runnerproto.Request{Kill: &runnerproto.Kill{GraceMS: grace.Milliseconds()}}); err != nil {
		return err
	}
	return w.settle(ctx, op)
}

// Freeze implements [hosted.World]. It fails with deadline_exceeded where a
// process cannot be stopped in 10 seconds; all of them run on then. Frozen, the world
// is watched: where a process goes on by itself all are killed, calls that rely on
// them fail with protocol, and the program's Exit has a Reason.
func (w *World) Freeze(ctx context.Context) error {
	_, err := w.do(ctx, "runnerclient.Freeze", &runnerproto.Request{Freeze: &runnerproto.Nothing{}})
	return err
}

// Thaw implements [hosted.World]. It fails with protocol where a process has gone on
// before; nothing is left then.
func (w *World) Thaw(ctx context.Context) error {
	_, err := w.do(ctx, "runnerclient.Thaw", &runnerproto.Request{Thaw: &runnerproto.Nothing{}})
	return err
}

// WriteFile implements [hosted.World]. Errors: invalid_request for a path that is
// none or leads out; access_denied where something read-only is in the way;
// sandbox_limit where there is no room; and those of content, which must end with
// ctx.
func (w *World) WriteFile(ctx context.Context, f hosted.File, content io.Reader) error {
	return w.transfer(ctx, "runnerclient.WriteFile", func(stream uint64) *runnerproto.Request {
		return &runnerproto.Request{Write: &runnerproto.Write{Path: f.Path, Executable: f.Executable, ReadOnly: f.ReadOnly, Stream: stream}}
	}, func(conn net.Conn) error { return upload(conn, content) })
}

// Archive implements [hosted.World]. What was written to dst is worth nothing
// when there is an error. Files that were written ReadOnly are left out.
func (w *World) Archive(ctx context.Context, p hosted.Paths, maxBytes int, dst io.Writer) error {
	return w.transfer(ctx, "runnerclient.Archive", func(stream uint64) *runnerproto.Request {
		return &runnerproto.Request{Archive: &runnerproto.Archive{Include: p.Include, Exclude: p.Exclude, MaxBytes: int64(maxBytes), Stream: stream}}
	}, func(conn net.Conn) error { return download(conn, dst) })
}

// Restore implements [hosted.World]. Errors: protocol for an archive that Archive
// does not make, and while a process of the world runs unfrozen; state_too_large;
// sandbox_limit where there is no room.
func (w *World) Restore(ctx context.Context, archive io.Reader) error {
	return w.transfer(ctx, "runnerclient.Restore", func(stream uint64) *runnerproto.Request {
		return &runnerproto.Request{Restore: &runnerproto.Restore{Stream: stream}}
	}, func(conn net.Conn) error { return upload(conn, archive) })
}

// Reset implements [hosted.World].
func (w *World) Reset(ctx context.Context) error { return w.reset(ctx, false) }

// ResetHome implements [hosted.World].
func (w *World) ResetHome(ctx context.Context) error { return w.reset(ctx, true) }

func (w *World) reset(ctx context.Context, keepWorkspace bool) error {
	const op = "runnerclient.Reset"
	if _, err := w.do(ctx, op, &runnerproto.Request{Reset: &runnerproto.Reset{KeepWorkspace: keepWorkspace}}); err != nil {
		return err
	}
	return w.settle(ctx, op)
}

// Limits implements [hosted.World].
func (w *World) Limits(ctx context.Context) ([]string, error) {
	const op = "runnerclient.Limits"
	r, err := w.do(ctx, op, &runnerproto.Request{Limits: &runnerproto.Nothing{}})
	if err != nil {
		return nil, err
	}
	if r.Hit == nil {
		return nil, misunderstood(op)
	}
	return r.Hit.Limits, nil
}
