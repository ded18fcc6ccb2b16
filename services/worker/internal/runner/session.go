//go:build linux

package runner

import (
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"cofferdam.dev/services/worker/internal/runnerproto"
)

// session is one control connection and all that was begun on it.
type session struct {
	world *world
	log   *slog.Logger
	conn  net.Conn
	token string
	over  chan struct{} // closed when nothing of it is left

	calls sync.WaitGroup

	writing sync.Mutex // of a reply

	mu      sync.Mutex
	closed  bool
	open    map[uint64]context.CancelFunc // requests, by ID
	streams map[uint64]net.Conn           // that wait for their request
}

func newSession(w *world, log *slog.Logger, conn net.Conn, token string) *session {
	return &session{
		world: w, log: log, conn: conn, token: token, over: make(chan struct{}),
		open: map[uint64]context.CancelFunc{}, streams: map[uint64]net.Conn{},
	}
}

// is compares the token of a stream.
func (s *session) is(token string) bool {
	return subtle.ConstantTimeCompare([]byte(s.token), []byte(token)) == 1
}

// serve answers requests until the connection ends, or ctx. What breaks the
// protocol ends it as well: a worker that cannot be understood is not obeyed.
func (s *session) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	for {
		var r runnerproto.Request
		err := runnerproto.ReadFrame(s.conn, &r, runnerproto.MaxRequest)
		if err == nil {
			err = r.Validate()
		}
		if err == nil {
			err = s.take(ctx, &r)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				s.log.WarnContext(ctx, "control connection is given up", "error", err)
			}
			break
		}
	}
	cancel()
	s.finish(ctx)
}

// take begins a request.
func (s *session) take(ctx context.Context, r *runnerproto.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cancel, known := s.open[r.ID]
	if r.Cancel != nil {
		if known { // else it has been answered
			cancel()
		}
		return nil
	}
	if known {
		return errors.New("runner: the id of an open request was used again")
	}
	if len(s.open) >= runnerproto.MaxCalls {
		s.calls.Go(func() {
			s.reply(&runnerproto.Reply{ID: r.ID, Error: runnerproto.Fail(nil, runnerproto.Capacity, "too many calls")})
		})
		return nil
	}
	ctx, cancel = context.WithCancel(ctx)
	s.open[r.ID] = cancel
	s.calls.Go(func() {
		reply := s.answer(ctx, r)
		cancel()
		reply.ID = r.ID
		s.mu.Lock()
		delete(s.open, r.ID)
		s.mu.Unlock()
		s.reply(reply)
	})
	return nil
}

// reply writes a reply. A worker that does not take it in has the connection
// closed.
func (s *session) reply(r *runnerproto.Reply) {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.conn.SetWriteDeadline(time.Now().Add(runnerproto.WriteTimeout))
	if err == nil {
		err = runnerproto.WriteFrame(s.conn, r, runnerproto.MaxReply)
	}
	if err != nil {
		_ = s.conn.Close() // the loop that reads ends, and the session with it
	}
}

// add keeps a stream for the request that will use it. The oldest give way: the
// worker has forgotten them, since it opens one only to use it at once.
func (s *session) add(id uint64, conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.streams[id]; taken || s.closed {
		return false
	}
	if len(s.streams) >= runnerproto.MaxStreams {
		oldest := id
		for other := range s.streams {
			oldest = min(oldest, other)
		}
		if oldest == id {
			return false
		}
		_ = s.streams[oldest].Close()
		delete(s.streams, oldest)
	}
	s.streams[id] = conn
	return true
}

// stream takes a stream out.
func (s *session) stream(id uint64) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, ok := s.streams[id]
	if !ok {
		return nil, runnerproto.Fail(nil, runnerproto.BrokenOrder, "there is no such stream")
	}
	delete(s.streams, id)
	return conn, nil
}

// finish ends everything: processes first, so that nothing works on for a worker
// that is gone, then what copies, then the files.
func (s *session) finish(ctx context.Context) {
	defer close(s.over)
	_ = s.conn.Close()
	s.mu.Lock()
	s.closed = true
	for _, conn := range s.streams {
		_ = conn.Close()
	}
	clear(s.streams)
	s.mu.Unlock()
	if err := s.world.kill(0); err != nil {
		s.log.ErrorContext(ctx, "processes are left", "error", err)
	}
	s.calls.Wait()
	s.world.clean(context.WithoutCancel(ctx)) // it must be done, whoever is gone
}
