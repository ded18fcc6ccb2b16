package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/otelconnect"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.opentelemetry.io/otel/attribute"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/telemetry"
)

// maxAnswerBytes bounds one message of an answer.
const maxAnswerBytes = 4 << 20

// unixAuthority stands in URLs of requests that travel over a Unix socket. The
// server is known by its SPIFFE ID, so the name means nothing.
const unixAuthority = "https://unix.cofferdam.invalid"

// Endpoint is an address and the one identity that may answer there.
type Endpoint struct {
	// Address is https://host:port or unix:///path.
	Address string
	ID      spiffeid.ID
}

// ParseEndpoint reads an endpoint as it stands in configuration.
func ParseEndpoint(address, id string) (Endpoint, error) {
	sid, err := spiffeid.FromString(id)
	if err != nil {
		return Endpoint{}, fmt.Errorf("rpc: endpoint %q: SPIFFE ID: %w", address, err)
	}
	if address == "" {
		return Endpoint{}, errors.New("rpc: endpoint without an address")
	}
	return Endpoint{Address: address, ID: sid}, nil
}

// BaseURL is what the paths of requests are appended to.
func (e Endpoint) BaseURL() string {
	if e.unix() {
		return unixAuthority
	}
	return e.Address
}

func (e Endpoint) unix() bool { return len(e.Address) > 7 && e.Address[:7] == "unix://" }

// HTTPClient speaks to the endpoint over mutual TLS, and to nobody else.
func (e Endpoint) HTTPClient(src identity.Source) *http.Client {
	var opts identity.ClientOptions
	if e.unix() {
		opts.Address = e.Address
	}
	return identity.HTTPClient(src, e.ID, opts)
}

// Dial makes a client of the endpoint.
func (e Endpoint) Dial(src identity.Source, tel *telemetry.Telemetry) (*connect.Client, error) {
	return NewClient(e.HTTPClient(src), e.BaseURL(), tel)
}

// NewClient makes a client whose errors are *fault.Error. Requests are not
// compressed. A call has the deadline of its context and no other.
func NewClient(hc *http.Client, baseURL string, tel *telemetry.Telemetry) (*connect.Client, error) {
	tracing, err := otelconnect.NewClientInterceptor(
		otelconnect.WithTracerProvider(tel.TracerProvider), otelconnect.WithMeterProvider(tel.MeterProvider),
		otelconnect.WithPropagator(tel.Propagator), otelconnect.WithAttributeFilter(withoutPeer))
	if err != nil {
		return nil, fmt.Errorf("rpc: client tracing: %w", err)
	}
	transport := connecthttp.NewTransport(hc, baseURL,
		connecthttp.WithReadMaxBytes(maxAnswerBytes), connecthttp.WithCompressors())
	return connect.NewClient(transport, restoring, tracing, authorizing), nil
}

// withoutPeer leaves out where a server is: each sandbox has an address of its own, and
// measures by address would grow with every one that there ever was.
func withoutPeer(_ connect.Spec, a attribute.KeyValue) bool {
	return a.Key != "server.address" && a.Key != "server.port"
}

type tokenKey struct{}

// WithToken sends a capability with the calls that are made with ctx.
func WithToken(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, tokenKey{}, token)
}

func authorizing(next connect.ClientFunc) connect.ClientFunc {
	return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
		if token, ok := ctx.Value(tokenKey{}).(string); ok {
			if info, ok := connect.CallInfoForClientContext(ctx); ok {
				info.RequestHeader().Set("Authorization", "Bearer "+token)
			}
		}
		return next(ctx, spec)
	}
}

// restoring gives back the errors that the server meant.
func restoring(next connect.ClientFunc) connect.ClientFunc {
	return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
		stream, err := next(ctx, spec)
		r := restorer{ctx: ctx, spec: spec}
		if err != nil {
			return nil, r.restore(err)
		}
		return &restoringStream{ClientStream: stream, restorer: r}, nil
	}
}

type restoringStream struct {
	connect.ClientStream
	restorer
}

func (s *restoringStream) Send(msg any) error { return s.restore(s.ClientStream.Send(msg)) }

func (s *restoringStream) Receive(msg any) error { return s.restore(s.ClientStream.Receive(msg)) }

type restorer struct {
	ctx  context.Context //nolint:containedctx // lives as long as the call, which has no other way to get it
	spec connect.Spec
}

// restore leaves the clean end of a stream as it is: io.EOF. In a unary call
// that is a connection which broke.
func (r restorer) restore(err error) error {
	if err == nil {
		return nil
	}
	if r.spec.StreamType != connect.StreamTypeUnary && errors.Is(err, io.EOF) {
		return io.EOF
	}
	f := fault.FromConnect(err, r.spec.Procedure)
	if f.Code() == fault.Cancelled && r.ctx.Err() == nil && !answered(err) {
		// The peer reset the stream; nobody here has cancelled anything.
		return fault.Wrap(err, fault.DependencyUnavailable, r.spec.Procedure)
	}
	return f
}

// answered tells an error that a server meant from one of the transport.
func answered(err error) bool {
	var ce *connect.Error
	return errors.As(err, &ce) && len(ce.Details()) > 0
}
