package mcpstdio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/pkg/process"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

// Bounds of one server.
const (
	// maxMessage bounds one message of a server, in bytes; a larger one ends it.
	maxMessage = 16 << 20
	// writeTimeout is how long a server may leave a message unread; then it ends.
	writeTimeout = 5 * time.Second
	// exitGrace is how long a server may take to end after its input has ended,
	// and again after SIGTERM.
	exitGrace = time.Second
	// stderrTail is how much of the end of a server's stderr is kept, in bytes.
	stderrTail = 4 << 10
)

// Config says what to start.
type Config struct {
	// Command is the absolute path of the program and its arguments.
	Command []string
	// Env is the whole environment, "name=value" each.
	Env []string
	// ConnectTimeout bounds the negotiation.
	ConnectTimeout time.Duration
	// World is what the server runs in; nil runs it among the broker's own processes,
	// which is for a machine that allows no world, where the operator said so.
	World *World
	// RunAs is, without a World, the uid and gid of the server, with no further groups and no way to
	// get other rights; 0 is those of this process. Only root can give another.
	RunAs uint32
}

// ErrUID says that the layer uid cannot be put on.
var ErrUID = errors.New("mcpstdio: layer uid: only root can run a server as another user: start the broker as root, or leave run_as out")

// Server is a running server with which a session is negotiated. Its methods can
// be called from any goroutine.
type Server struct {
	process *process.Process
	peer    mcpcall.Peer
	tap     *tap
	stdin   *input
	stdout  *os.File
	stderr  *tail

	watch   sync.WaitGroup
	changed chan struct{}

	broke sync.Once
	done  chan struct{}
}

// Start starts a server and negotiates a session. ctx bounds the start alone: the
// server lives until Close, and not longer than this process.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if len(cfg.Command) == 0 {
		return nil, errors.New("mcpstdio: no command")
	}
	if cfg.World == nil && cfg.RunAs != 0 && os.Geteuid() != 0 {
		return nil, ErrUID
	}
	s := &Server{stderr: &tail{most: stderrTail}, done: make(chan struct{}), changed: make(chan struct{}, 1)}
	if err := s.spawn(ctx, cfg); err != nil {
		return nil, err
	}
	if err := s.connect(ctx, cfg.ConnectTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("mcpstdio: negotiate: %w", err), s.end(0), s.stdout.Close(), s.failed())
	}
	s.watch.Go(func() { _ = s.peer.Session.Wait(); s.fail() }) // how it broke is the process's to say
	s.watch.Go(func() { <-s.process.Done(); s.fail() })
	return s, nil
}

// spawn starts the process with a pipe at either end.
func (s *Server) spawn(ctx context.Context, cfg Config) error {
	childIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return errors.Join(err, childIn.Close(), in.Close())
	}
	life := context.WithoutCancel(ctx)
	if cfg.World != nil {
		s.process, err = cfg.World.start(life, cfg.Command, cfg.Env, childIn, childOut, s.stderr)
	} else {
		s.process, err = s.plain(life, cfg, childIn, childOut)
	}
	err = errors.Join(err, childIn.Close(), childOut.Close())
	if err != nil {
		err = errors.Join(err, in.Close(), out.Close())
		if s.process != nil {
			err = errors.Join(err, s.process.Stop(0))
		}
		return err
	}
	s.stdin, s.stdout = &input{file: in, broken: s.kill}, out
	return nil
}

// plain starts the process without a world.
func (s *Server) plain(life context.Context, cfg Config, childIn, childOut *os.File) (*process.Process, error) {
	return process.Start(life, process.Spec{
		Path: cfg.Command[0], Args: cfg.Command[1:], Env: cfg.Env,
		Dir:   "/", // never a folder of the broker's
		Stdin: childIn, Stdout: childOut, Stderr: s.stderr,
		NoNewPrivileges: true,
		Attr: func(a *syscall.SysProcAttr) {
			if cfg.RunAs != 0 {
				a.Credential = &syscall.Credential{Uid: cfg.RunAs, Gid: cfg.RunAs} // and no groups
			}
		},
	})
}

// connect negotiates.
func (s *Server) connect(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	session, err := mcpcall.NewClient(mcp.ClientOptions{
		// The tap hears of it first; this makes the SDK ask for it.
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {},
	}).Connect(ctx, transport{s}, nil)
	if err != nil {
		return err
	}
	s.peer.Session, s.peer.Forget = session, s.tap.forget
	return nil
}

// Call calls a tool, see mcpcall.Peer.
func (s *Server) Call(ctx context.Context, tool string, arguments json.RawMessage, by time.Time, opts ...mcpcall.Option) (mcpcall.Answer, error) {
	return s.peer.Call(ctx, tool, arguments, by, opts...)
}

// Tools lists the tools, see mcpcall.Peer.
func (s *Server) Tools(ctx context.Context) (mcpcall.List, error) { return s.peer.Tools(ctx) }

// Changed is told when the server says that its list of tools has changed.
func (s *Server) Changed() <-chan struct{} { return s.changed }

// transport is what the SDK opens: the pipes with the tap on them.
type transport struct{ s *Server }

func (t transport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := (&mcp.IOTransport{Reader: t.s.stdout, Writer: t.s.stdin, MaxLineLength: maxMessage}).Connect(ctx)
	if err != nil {
		return nil, err
	}
	t.s.tap = newTap(conn, t.s.changed)
	return t.s.tap, nil
}

// Done is closed when the server has ended or can no longer be spoken to.
func (s *Server) Done() <-chan struct{} { return s.done }

// Version is the protocol revision that was negotiated.
func (s *Server) Version() string { return s.peer.Session.InitializeResult().ProtocolVersion }

// Close ends the server: first by the end of its input, then by force. Requests
// that are under way get no answer. It waits for everything that Start began.
func (s *Server) Close() error {
	s.peer.Shut()
	err := s.end(exitGrace)
	// A process that left its group may hold the other end of the pipe.
	_ = s.stdout.Close()
	_ = s.peer.Session.Close() // says only that the pipes are closed
	s.peer.Wait()
	s.watch.Wait()
	return err
}

// end ends the process.
func (s *Server) end(grace time.Duration) error {
	_ = s.stdin.Close() // the server may have gone first
	if grace > 0 {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-s.process.Done():
		case <-t.C:
		}
	}
	return s.process.Stop(grace)
}

func (s *Server) kill() { _ = s.process.Stop(0) }

func (s *Server) fail() { s.broke.Do(func() { close(s.done) }) }

// failed says how the server ended and what it said last. It is for a start that
// failed: there was no call, so nothing of a user's can be in it.
func (s *Server) failed() error {
	if text := s.stderr.String(); text != "" {
		return errors.Join(s.process.Err(), &StderrError{text})
	}
	return s.process.Err()
}

// StderrError is what a server that did not start has written to its stderr.
type StderrError struct{ Tail string }

// Error quotes it.
func (e *StderrError) Error() string { return "stderr ends: " + e.Tail }
