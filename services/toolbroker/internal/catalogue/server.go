package catalogue

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
	"cofferdam.dev/services/toolbroker/internal/persubject"
)

const (
	// startTimeout bounds the start of a server, and again its list of tools.
	startTimeout = 20 * time.Second
	// DefaultBackOff is the pause before a server is started again; it doubles
	// with each start up to maxBackOff, and begins anew after a server that lived
	// for steadyAfter.
	DefaultBackOff = 250 * time.Millisecond
	maxBackOff     = 30 * time.Second
	steadyAfter    = time.Minute
	// maxReason bounds what is logged of why a server did not start, in bytes.
	maxReason = 2 << 10
)

// server runs one MCP server for as long as the catalogue runs.
type server struct {
	cfg       Server
	connector connector
	// subjects have a session each; nil where all are called in the live one.
	subjects *persubject.Pool[peer]
	turns    *turns
	tools    []*Tool
	logger   *slog.Logger
	backOff  time.Duration

	// tried is closed when the first start has succeeded or failed.
	tried chan struct{}
	once  sync.Once

	// doubt is told that a call went wrong: the server may not be what it was.
	doubt chan struct{}

	// said is what was logged last of each tool that cannot be used. It is of the
	// goroutine that runs the server.
	said map[*Tool]string

	mu     sync.Mutex
	live   peer
	usable map[*Tool]bool // of the live server
}

// offers gives the running server if it offers the tool now, else nil.
func (s *server) offers(t *Tool) peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.usable[t] {
		return nil
	}
	return s.live
}

// run keeps the server running until ctx ends.
func (s *server) run(ctx context.Context) {
	if s.subjects != nil {
		var sessions sync.WaitGroup
		defer sessions.Wait()
		sessions.Go(func() { s.subjects.Run(ctx) })
	}
	pause := s.backOff
	for {
		began := time.Now()
		if err := s.serve(ctx); err != nil && ctx.Err() == nil {
			s.logger.WarnContext(ctx, "tool server did not start", "code", string(fault.ToolUnavailable), "reason", s.loggable(err))
		}
		s.markTried()
		if time.Since(began) >= steadyAfter {
			pause = s.backOff
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, maxBackOff)
	}
}

func (s *server) markTried() { s.once.Do(func() { close(s.tried) }) }

// serve starts the server and keeps its tools up to date until it ends, or ctx
// does. Its error is that of the start.
func (s *server) serve(ctx context.Context) error {
	live, err := s.connector.connect(ctx)
	if err != nil {
		return err
	}
	found, err := list(ctx, live)
	if err != nil {
		_ = live.Close() // it is of no use, whatever this says
		return err
	}
	n := s.publish(ctx, live, found)
	s.logger.InfoContext(ctx, "tool server is ready", "tools", n, "protocol", live.Version())
	s.markTried()
	s.refresh(ctx, live, found.TTL)
	s.withdraw()
	if err := live.Close(); err != nil {
		s.logger.WarnContext(ctx, "tool server could not be ended", "error", err.Error())
	}
	return nil
}

func list(ctx context.Context, p peer) (mcpcall.List, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.Tools(ctx)
}

// publish makes the tools that the server listed usable, and says how many.
func (s *server) publish(ctx context.Context, live peer, found mcpcall.List) int {
	byName := make(map[string]*Tool, len(s.tools))
	for _, t := range s.tools {
		byName[t.name] = t
	}
	redact := s.connector.redactor()
	wrong, defined := map[*Tool]string{}, map[*Tool]*definition{}
	for _, raw := range found.Tools {
		name, d, err := define(raw, redact)
		t := byName[name]
		switch {
		case t == nil: // not allowed, or nobody can tell what it is
		case err != nil:
			wrong[t] = s.loggable(err)
		case defined[t] != nil:
			wrong[t] = "listed twice"
		default:
			defined[t] = d
		}
	}
	usable := map[*Tool]bool{}
	for _, t := range s.tools {
		if defined[t] == nil && wrong[t] == "" {
			wrong[t] = "the server does not offer it"
		}
		if wrong[t] == "" {
			t.definition.Store(defined[t])
			usable[t] = true
		} else if s.said[t] != wrong[t] {
			s.logger.WarnContext(ctx, "tool cannot be used", "tool_id", t.id, "code", string(fault.ToolUnavailable), "reason", wrong[t])
		}
	}
	s.said = wrong
	s.mu.Lock()
	s.live, s.usable = live, usable
	s.mu.Unlock()
	return len(usable)
}

func (s *server) withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live, s.usable = nil, nil
}

// suspect makes the list of tools be asked for soon.
func (s *server) suspect() {
	select {
	case s.doubt <- struct{}{}:
	default:
	}
}

// loggable is why a server is of no use. Nobody has called it yet, so nothing of
// a user's is in it; its credential may be.
func (s *server) loggable(err error) string {
	return event.Truncate(event.SanitizeText(s.connector.redactor().Cut(err.Error())), maxReason)
}
