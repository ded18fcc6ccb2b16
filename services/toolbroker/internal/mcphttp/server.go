package mcphttp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/services/toolbroker/internal/mcpcall"
)

// Config says which server to speak to, and how.
type Config struct {
	// URL of the MCP endpoint.
	URL string
	// Transport sends the requests; it neither follows redirects nor sends
	// anything again of which a byte has left. Close closes its idle connections.
	Transport http.RoundTripper
	// Authorize adds the server's credential to the headers of a request; nil adds
	// nothing. An error keeps the request from leaving.
	Authorize func(ctx context.Context, h http.Header) error
	// Refused is told with which headers the server did not take the credential;
	// may be nil.
	Refused func(h http.Header)
	// ConnectTimeout bounds the negotiation.
	ConnectTimeout time.Duration
}

// Server is a server with which a session is negotiated, where it has sessions.
// Its methods can be called from any goroutine.
type Server struct {
	peer   mcpcall.Peer
	tap    *tap
	listen sync.WaitGroup
	watch  sync.WaitGroup
}

// Connect negotiates. ctx bounds that alone: the server lives until Close.
func Connect(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{tap: newTap(context.WithoutCancel(ctx), cfg)}
	bounded, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
	defer cancel()
	session, err := mcpcall.NewClient(mcp.ClientOptions{}).Connect(bounded, &mcp.StreamableClientTransport{
		Endpoint: cfg.URL,
		HTTPClient: &http.Client{
			Transport:     s.tap,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		MaxRetries:           -1,
		DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		s.tap.close()
		return nil, fmt.Errorf("mcphttp: negotiate: %w", err)
	}
	s.peer.Session = session
	s.peer.Headers = s.Version() >= mcpcall.Stateless
	s.tap.negotiated(s.Version())
	s.watch.Go(func() { _ = session.Wait(); s.tap.lost() })
	c := session.InitializeResult().Capabilities
	// In the older revisions a server may also ask there what a call needs.
	if s.Version() < mcpcall.Stateless || c != nil && c.Tools != nil && c.Tools.ListChanged {
		s.listen.Go(s.tap.listen)
	}
	return s, nil
}

// Call calls a tool, see mcpcall.Peer.
func (s *Server) Call(ctx context.Context, tool string, arguments json.RawMessage, by time.Time, opts ...mcpcall.Option) (mcpcall.Answer, error) {
	return s.peer.Call(ctx, tool, arguments, by, opts...)
}

// Tools lists the tools, see mcpcall.Peer.
func (s *Server) Tools(ctx context.Context) (mcpcall.List, error) { return s.peer.Tools(ctx) }

// Changed is told when the server says that its list of tools has changed.
func (s *Server) Changed() <-chan struct{} { return s.tap.changed }

// Done is closed when the session is over: the server no longer knows it, or it
// is closed.
func (s *Server) Done() <-chan struct{} { return s.tap.done }

// Version is the protocol revision that was negotiated.
func (s *Server) Version() string { return s.peer.Session.InitializeResult().ProtocolVersion }

// Close ends the session. Requests that are under way get no answer. It waits for
// everything that Connect began, and returns nil.
func (s *Server) Close() error {
	s.peer.Shut()
	s.tap.stopCalls()
	_ = s.peer.Session.Close() // the server may be gone
	s.peer.Wait()
	s.tap.close()
	s.listen.Wait()
	s.watch.Wait()
	return nil
}
