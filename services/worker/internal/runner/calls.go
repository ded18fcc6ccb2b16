//go:build linux

package runner

import (
	"context"
	"net"
	"time"

	"cofferdam.dev/services/worker/internal/runnerproto"
)

// answer carries out one request.
func (s *session) answer(ctx context.Context, r *runnerproto.Request) *runnerproto.Reply {
	reply, err := s.call(ctx, r)
	if err == nil {
		return reply
	}
	e := runnerproto.From(err)
	if e.Code == runnerproto.Internal {
		s.log.ErrorContext(ctx, "call failed", "error", err)
	}
	return &runnerproto.Reply{Error: e}
}

func (s *session) call(ctx context.Context, r *runnerproto.Request) (*runnerproto.Reply, error) {
	w := s.world
	switch {
	case r.Start != nil:
		return s.start(ctx, r.Start)
	case r.Wait != nil:
		return w.wait(ctx, r.Wait.Program)
	case r.Kill != nil:
		return &runnerproto.Reply{}, w.kill(time.Duration(r.Kill.GraceMS) * time.Millisecond)
	case r.Freeze != nil:
		return &runnerproto.Reply{}, w.freeze(ctx)
	case r.Thaw != nil:
		return &runnerproto.Reply{}, w.thaw(ctx)
	case r.Write != nil:
		return s.with(ctx, r.Write.Stream, func(c net.Conn) error { return w.write(r.Write, c) })
	case r.Archive != nil:
		return s.with(ctx, r.Archive.Stream, func(c net.Conn) error { return w.archive(ctx, r.Archive, c) })
	case r.Restore != nil:
		return s.with(ctx, r.Restore.Stream, func(c net.Conn) error { return w.restore(ctx, c) })
	case r.Reset != nil:
		return &runnerproto.Reply{}, w.reset(ctx, r.Reset.KeepWorkspace)
	case r.Limits != nil:
		return &runnerproto.Reply{Hit: &runnerproto.Hit{Limits: w.limits.all()}}, nil
	default: // Validate has seen to it
		return nil, runnerproto.Fail(nil, runnerproto.BrokenOrder, "no call")
	}
}

func (s *session) start(ctx context.Context, r *runnerproto.Start) (*runnerproto.Reply, error) {
	in, err := s.stream(r.Stdin)
	if err != nil {
		return nil, err
	}
	out, err := s.stream(r.Stdout)
	if err != nil {
		_ = in.Close()
		return nil, err
	}
	p, err := s.world.start(ctx, r, in, out)
	if err != nil {
		return nil, err
	}
	return &runnerproto.Reply{Started: &runnerproto.Started{Program: p.id}}, nil
}

// with calls f with a stream, which ends with ctx.
func (s *session) with(ctx context.Context, id uint64, f func(net.Conn) error) (*runnerproto.Reply, error) {
	conn, err := s.stream(id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	return &runnerproto.Reply{}, f(conn)
}

// wait is answered when the program has ended.
func (w *world) wait(ctx context.Context, id uint64) (*runnerproto.Reply, error) {
	if err := w.enter(ctx); err != nil {
		return nil, err
	}
	p := w.program
	w.leave()
	if p == nil || p.id != id {
		return nil, runnerproto.Fail(nil, runnerproto.BrokenOrder, "there is no such program")
	}
	select {
	case <-p.done:
		return &runnerproto.Reply{Ended: &p.end}, nil
	case <-ctx.Done():
		return nil, contextError(ctx)
	}
}

// clean leaves nothing of a session to the next one.
func (w *world) clean(ctx context.Context) {
	w.life <- struct{}{}
	p := w.program
	w.program = nil
	w.leave()
	if p != nil {
		p.close()
	}
	if err := w.reset(ctx, false); err != nil {
		w.log.ErrorContext(ctx, "world cannot be emptied", "error", err)
		w.broken.Store(true)
	}
}
