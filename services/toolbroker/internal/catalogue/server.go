package catalogue

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/toolbroker/internal/mcpstdio"
	"cofferdam.dev/services/toolbroker/internal/project"
	"cofferdam.dev/services/toolbroker/internal/secretfile"
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
	cfg     Server
	timeout time.Duration
	tools   []*Tool
	logger  *slog.Logger
	backOff time.Duration

	// tried is closed when the first start has succeeded or failed.
	tried chan struct{}
	once  sync.Once

	// redacts is of the goroutine that runs the server.
	redacts project.Redactor

	mu     sync.Mutex
	live   *live
	usable map[*Tool]bool // of the live server
}

// live is a running server and what must not be shown of it.
type live struct {
	*mcpstdio.Server

	redact project.Redactor
}

// offers gives the running server if it offers the tool now, else nil.
func (s *server) offers(t *Tool) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.usable[t] {
		return nil
	}
	return s.live
}

// run keeps the server running until ctx ends.
func (s *server) run(ctx context.Context) {
	pause := s.backOff
	for {
		began := time.Now()
		if err := s.serve(ctx); err != nil && ctx.Err() == nil {
			s.logger.WarnContext(ctx, "tool server did not start", "reason", s.loggable(err))
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

// serve starts the server and waits for its end, or for that of ctx. Its error is
// that of the start.
func (s *server) serve(ctx context.Context) error {
	l, found, err := s.start(ctx)
	if err != nil {
		return err
	}
	s.publish(ctx, l, found)
	s.markTried()
	select {
	case <-l.Done():
		s.logger.WarnContext(ctx, "tool server ended")
	case <-ctx.Done():
	}
	s.withdraw()
	if err := l.Close(); err != nil {
		s.logger.WarnContext(ctx, "tool server could not be ended", "error", err.Error())
	}
	return nil
}

// start starts the server and asks for its tools.
func (s *server) start(ctx context.Context) (*live, []json.RawMessage, error) {
	env, redact, err := s.environment()
	if err != nil {
		return nil, nil, err
	}
	s.redacts = redact
	child, err := mcpstdio.Start(ctx, mcpstdio.Config{Command: s.cfg.Command, Env: env, ConnectTimeout: startTimeout})
	if err != nil {
		return nil, nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	found, err := child.Tools(bounded)
	if err != nil {
		_ = child.Close() // it is of no use, whatever this says
		return nil, nil, err
	}
	return &live{child, redact}, found, nil
}

// environment is the whole environment of the server, with its own credential and
// nobody else's.
func (s *server) environment() ([]string, project.Redactor, error) {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Environment)) {
		env = append(env, name+"="+s.cfg.Environment[name])
	}
	c := s.cfg.Credential
	if c == nil {
		return env, project.Redactor{}, nil
	}
	secret, err := secretfile.Read(c.Path)
	if err != nil {
		return nil, project.Redactor{}, fmt.Errorf("credential: %w", err)
	}
	return append(env, c.Env+"="+secret), project.NewRedactor(secret), nil
}

// publish makes the tools that the server listed usable.
func (s *server) publish(ctx context.Context, l *live, found []json.RawMessage) {
	byName := make(map[string]*Tool, len(s.tools))
	for _, t := range s.tools {
		byName[t.name] = t
	}
	usable, twice := map[*Tool]bool{}, map[*Tool]bool{}
	for _, raw := range found {
		name, d, err := define(raw, l.redact)
		t := byName[name]
		switch {
		case t == nil: // not allowed, or nobody can tell what it is
			continue
		case err != nil:
			s.logger.WarnContext(ctx, "tool cannot be used", "tool_id", t.id, "reason", s.loggable(err))
			continue
		case usable[t] || twice[t]:
			s.logger.WarnContext(ctx, "tool cannot be used", "tool_id", t.id, "reason", "listed twice")
			delete(usable, t)
			twice[t] = true
			continue
		}
		t.definition.Store(d)
		usable[t] = true
	}
	for _, t := range s.tools {
		if !usable[t] {
			s.logger.WarnContext(ctx, "tool is not offered by its server", "tool_id", t.id)
		}
	}
	s.mu.Lock()
	s.live, s.usable = l, usable
	s.mu.Unlock()
	s.logger.InfoContext(ctx, "tool server is ready", "tools", len(usable), "protocol", l.Version())
}

func (s *server) withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live, s.usable = nil, nil
}

// loggable is why a server is of no use. Nobody has called it yet, so nothing of
// a user's is in it; its credential may be.
func (s *server) loggable(err error) string {
	return event.Truncate(event.SanitizeText(s.redacts.Cut(err.Error())), maxReason)
}
