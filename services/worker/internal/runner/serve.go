//go:build linux

package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/runnerproto"
)

// maxConns bounds the connections that are being opened at a time.
const maxConns = 64

// handover bounds how long a worker waits for what the one before has left.
const handover = 2 * time.Second

// Run serves workers, one after the other, until ctx ends. It returns when no
// process is left and everything is closed.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	w, err := newWorld(cfg, log)
	if err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	defer w.close()
	l, err := listen(ctx, cfg.socket())
	if err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	reaping, stopReaping := context.WithCancel(context.WithoutCancel(ctx))
	var reaper sync.WaitGroup
	reaper.Go(func() { w.reap.Run(reaping) })
	defer reaper.Wait()
	defer stopReaping() // when the last session has seen its processes end

	s := server{world: w, log: log, listener: l}
	log.InfoContext(ctx, "runner is ready", "own_processes", w.killer.tree.Own(), "own_user", w.owner.Apart)
	return s.serve(ctx)
}

// listen makes the socket: for this user, and for the group that it gets from its
// folder.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil { // of a runner that is gone
			return nil, err
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil { //nolint:gosec // the worker's group is the other side
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

type server struct {
	world    *world
	log      *slog.Logger
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	current *session
}

func (s *server) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	defer stop()
	room := make(chan struct{}, maxConns)
	for {
		conn, err := s.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("runner: %w", err)
		}
		select {
		case room <- struct{}{}:
			s.wg.Go(func() { s.open(ctx, conn, func() { <-room }) })
		default:
			_ = conn.Close() // nobody who may connect opens so many
		}
	}
}

// open takes a connection's first frame, and the connection. opened is called
// when that is done.
func (s *server) open(ctx context.Context, conn net.Conn, opened func()) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	release := sync.OnceFunc(opened)
	defer release()
	err := s.allowed(conn)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(runnerproto.OpeningTimeout))
	}
	var o runnerproto.Opening
	if err == nil {
		err = runnerproto.ReadFrame(conn, &o, runnerproto.MaxOpening)
	}
	if err == nil && o.Version != runnerproto.Version {
		refuse(conn, runnerproto.Fail(nil, runnerproto.NotReady, "worker and runner are of different versions"))
		err = errors.New("runner: another version")
	}
	if err != nil {
		s.log.WarnContext(ctx, "connection is refused", "error", err)
		_ = conn.Close()
		return
	}
	if o.Session != "" {
		s.stream(conn, o)
		return
	}
	if session := s.control(ctx, conn); session != nil {
		release()
		session.serve(ctx)
	}
}

// allowed keeps the program out, should it ever come as far as the socket.
func (s *server) allowed(conn net.Conn) error {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("runner: not a Unix socket")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var perr error
	if err := raw.Control(func(fd uintptr) { peer, perr = unix.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED) }); err != nil {
		return err
	}
	if perr != nil {
		return perr
	}
	if s.world.owner.Apart && int(peer.Uid) == s.world.owner.UID {
		return errors.New("runner: the program's user may not connect")
	}
	// Where both are one user, as in a pod: a process of another process namespace has no
	// number here, and the worker is of another one.
	if s.world.killer.tree.Own() && peer.Pid != 0 {
		return errors.New("runner: a process of the world may not connect")
	}
	return nil
}

func refuse(conn net.Conn, e *runnerproto.Error) {
	_ = runnerproto.WriteFrame(conn, runnerproto.Opened{Error: e}, runnerproto.MaxOpening) // closed next, which says enough
}

// stream gives a stream to its session.
func (s *server) stream(conn net.Conn, o runnerproto.Opening) {
	s.mu.Lock()
	session := s.current
	s.mu.Unlock()
	if session == nil || !session.is(o.Session) {
		refuse(conn, runnerproto.Fail(nil, runnerproto.NotReady, "the session is over"))
		_ = conn.Close()
		return
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil || !session.add(o.Stream, conn) {
		refuse(conn, runnerproto.Fail(err, runnerproto.NotReady, "the stream cannot be taken"))
		_ = conn.Close()
		return
	}
	// The worker names the stream only once it has read this: the stream is not used
	// by anybody else before.
	err := runnerproto.WriteFrame(conn, runnerproto.Opened{}, runnerproto.MaxOpening)
	if err == nil {
		err = conn.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close() // whoever takes it finds it closed
	}
}

// control makes a session of a connection, once there is no other.
func (s *server) control(ctx context.Context, conn net.Conn) *session {
	session := newSession(s.world, s.log, conn, rand.Text())
	err := s.admit(ctx, session)
	if err != nil {
		refuse(conn, runnerproto.From(err))
		_ = conn.Close()
		return nil
	}
	opened := runnerproto.Opened{Session: session.token, World: s.world.describe()}
	err = runnerproto.WriteFrame(conn, opened, runnerproto.MaxOpening)
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		session.finish(ctx)
		return nil
	}
	return session
}

// admit waits for the end of the session before. A worker that is still there is
// not pushed aside.
func (s *server) admit(ctx context.Context, next *session) error {
	late := time.NewTimer(handover)
	defer late.Stop()
	for {
		s.mu.Lock()
		before := s.current
		if before == nil || isClosed(before.over) {
			s.current = next
			s.mu.Unlock()
			break
		}
		s.mu.Unlock()
		select {
		case <-before.over:
		case <-late.C:
			return runnerproto.Fail(nil, runnerproto.Running, "another worker is connected")
		case <-ctx.Done():
			return contextError(ctx)
		}
	}
	if s.world.broken.Load() {
		close(next.over)
		return runnerproto.Fail(nil, runnerproto.NotReady, "the world could not be emptied")
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
