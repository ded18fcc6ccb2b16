// Package loopback is what a hosted agent program gets in place of a model
// provider and a tool server: two HTTP endpoints on 127.0.0.1. One carries model
// calls to modelproxy, the other is an MCP server that carries tool calls to the
// ToolBroker, both with the worker's identity and the run's authority, of which
// the program sees nothing.
//
// The secret that opens the endpoints is known to the program and therefore to
// the model. It authorizes nothing that the program may not do anyway; it keeps
// other local processes out. Outside a run both endpoints refuse.
package loopback

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/services/worker/internal/harness"
)

// Name of the MCP server, from which agents make the names of its tools.
const Name = "cofferdam"

// Bounds of the endpoints, which no configuration changes.
const (
	// MaxModelRequest and MaxToolRequest bound a request's body, in bytes.
	MaxModelRequest = 8 << 20
	MaxToolRequest  = 1 << 20
	// MaxModelCalls and MaxToolCalls are under way at once.
	MaxModelCalls = 32
	MaxToolCalls  = 64
	// MaxHeaders of a request, each value counted.
	MaxHeaders = 100

	maxHeaderBytes = 32 << 10
	maxConnections = 256
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	// stallTimeout bounds how long the program may leave a piece of an answer
	// unread.
	stallTimeout = time.Minute
)

// Config of a Server.
type Config struct {
	// Tools that the MCP endpoint offers, under their offered names.
	Tools []harness.Tool
	// Logger gets what goes wrong, and nothing that was said.
	Logger *slog.Logger
}

// Server has the two endpoints. It is safe for concurrent use.
type Server struct {
	logger *slog.Logger
	http   *http.Server
	mcp    http.Handler
	tools  map[string]harness.Tool
	host   string // 127.0.0.1:port
	served chan struct{}

	models, calls chan struct{} // places

	mu     sync.Mutex
	secret string
	run    *Run
}

// New listens on a free port of 127.0.0.1. Nothing is let in before Renew.
// Errors: harness_options_invalid for a tool that MCP cannot offer.
func New(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{
		logger: cfg.Logger, served: make(chan struct{}), tools: make(map[string]harness.Tool, len(cfg.Tools)),
		models: make(chan struct{}, MaxModelCalls), calls: make(chan struct{}, MaxToolCalls),
	}
	server, err := s.offer(cfg.Tools)
	if err != nil {
		return nil, err
	}
	s.mcp = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		// Without sessions nothing is kept between requests, and nothing hangs open
		// while the program is stopped.
		Stateless: true, MaxRequestBodyBytes: MaxToolRequest,
	})
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("loopback: listen: %w", err)
	}
	s.host = l.Addr().String()
	s.http = &http.Server{
		Handler: s, MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // it quotes what a program sent
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(limited(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
			s.logger.ErrorContext(ctx, "loopback endpoints ended", "error", err.Error())
		}
	}()
	return s, nil
}

// Endpoints are what a program is told.
type Endpoints struct {
	// ModelBaseURL has no path; ModelBaseURLV1 ends in /v1.
	ModelBaseURL, ModelBaseURLV1 string
	// ModelKey is the secret. Each endpoint takes it as a bearer token, and the
	// model endpoint also as x-api-key and x-goog-api-key.
	ModelKey string
	// MCPURL needs no header: the secret is part of its path.
	MCPURL string
}

// Renew gives the next program a secret of its own. That of the program before
// opens nothing any more.
func (s *Server) Renew() Endpoints {
	secret := rand.Text()
	s.mu.Lock()
	s.secret = secret
	s.mu.Unlock()
	base := "http://" + s.host
	return Endpoints{
		ModelBaseURL: base, ModelBaseURLV1: base + "/v1", ModelKey: secret,
		MCPURL: base + "/" + secret + pathMCP,
	}
}

// opens tells whether a presented secret is the program's.
func (s *Server) opens(presented string) bool {
	s.mu.Lock()
	secret := s.secret
	s.mu.Unlock()
	return secret != "" && subtle.ConstantTimeCompare([]byte(secret), []byte(presented)) == 1
}

// Close ends the endpoints and whatever is under way, and the run with them.
func (s *Server) Close() {
	s.mu.Lock()
	run := s.run
	s.secret = ""
	s.mu.Unlock()
	if run != nil {
		run.Close()
	}
	if err := s.http.Close(); err != nil {
		s.logger.Warn("loopback endpoints not closed in order", "error", err.Error())
	}
	<-s.served
}

// limited lets most connections be open at once.
func limited(l net.Listener, most int) net.Listener {
	return &limitedListener{Listener: l, places: make(chan struct{}, most), closed: make(chan struct{})}
}

type limitedListener struct {
	net.Listener

	places chan struct{}
	once   sync.Once
	closed chan struct{}
}

// Accept waits for a place first.
func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: c, places: l.places}, nil
}

// Close also ends an Accept that waits for a place.
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn

	once   sync.Once
	places chan struct{}
}

// Close gives the place back.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.places })
	return err
}

// bearer is the token of an Authorization header.
func bearer(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
