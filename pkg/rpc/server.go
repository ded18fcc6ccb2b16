package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/otelconnect"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/telemetry"
)

// compressMinBytes: compressing small messages costs four times the throughput.
const compressMinBytes = 1 << 10

// Config of a Server.
type Config struct {
	Logger *slog.Logger
	// Verifier of capabilities; may be nil where no policy asks for one.
	Verifier *capability.Verifier
	// Guard of the fence; may be nil where no policy has a fence.
	Guard     *fence.Guard
	Telemetry *telemetry.Telemetry
	// Validator of messages; nil makes one. It compiles the rules of a message when
	// it sees the first one, so servers of one process may share it.
	Validator protovalidate.Validator
}

// Server serves Connect procedures and plain HTTP routes behind one door.
type Server struct {
	door     *door
	policies map[string]Policy
	connect  *connect.Server
	validate protovalidate.Validator
	mux      *http.ServeMux
	tel      *telemetry.Telemetry
	err      error
}

// NewServer makes a server. policies has one entry for each procedure, under
// its name such as "/harness.memory.v1.MemoryService/Get".
func NewServer(cfg Config, policies map[string]Policy) *Server {
	s := &Server{
		door:     &door{verifier: cfg.Verifier, guard: cfg.Guard, logger: cfg.Logger},
		policies: policies,
		mux:      http.NewServeMux(),
		tel:      cfg.Telemetry,
	}
	for name, p := range policies {
		s.err = errors.Join(s.err, s.checkPolicy(name, p))
	}
	var err error
	if s.validate = cfg.Validator; s.validate == nil {
		s.validate, err = protovalidate.New()
		s.err = errors.Join(s.err, err)
	}
	tracing, err := otelconnect.NewServerInterceptor(
		otelconnect.WithTracerProvider(cfg.Telemetry.TracerProvider), otelconnect.WithMeterProvider(cfg.Telemetry.MeterProvider),
		otelconnect.WithPropagator(cfg.Telemetry.Propagator), otelconnect.WithTrustRemote())
	s.err = errors.Join(s.err, err)
	if s.err == nil {
		s.connect = connect.NewServer(s.outermost, recovering, tracing, s.fence)
	} else {
		s.connect = connect.NewServer() // Handler refuses; registering must not panic before that
	}
	return s
}

func (s *Server) checkPolicy(name string, p Policy) error {
	if p.Audience != "" && s.door.verifier == nil {
		return fmt.Errorf("rpc: %s asks for a capability, but there is no verifier", name)
	}
	if p.Fence != NoFence && s.door.guard == nil {
		return fmt.Errorf("rpc: %s has a fence, but there is no guard", name)
	}
	return nil
}

// Connect is where handlers are registered.
func (s *Server) Connect() *connect.Server { return s.connect }

// Handler serves everything that was registered. It fails when a procedure has
// no policy: what nobody thought about is not served.
func (s *Server) Handler() (http.Handler, error) {
	if s.err != nil {
		return nil, s.err
	}
	for spec := range s.connect.Specs() {
		if _, ok := s.policies[spec.Procedure]; !ok {
			s.err = errors.Join(s.err, fmt.Errorf("rpc: procedure %s has no policy", spec.Procedure))
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	connecthttp.Mount(s.mux, s.connect,
		connecthttp.WithCompressMinBytes(compressMinBytes),
		connecthttp.WithConditionalOptions(func(spec connect.Spec) []connecthttp.Option {
			return []connecthttp.Option{connecthttp.WithReadMaxBytes(s.policies[spec.Procedure].maxBytes())}
		}))
	return unblockable(s.mux, firstMessage), nil
}

// outermost checks peer and capability before anything is decoded, and makes
// every error safe on the way out.
func (s *Server) outermost(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		c, err := s.enter(ctx, spec)
		if err == nil {
			ctx = withCall(ctx, c)
			err = next(ctx, spec, stream)
		}
		if e := finish(ctx, s.door.logger, spec.Procedure, err); e != nil {
			return fault.ToConnect(e)
		}
		return nil
	}
}

func (s *Server) enter(ctx context.Context, spec connect.Spec) (*call, error) {
	info, ok := connecthttp.ServerInfoForContext(ctx)
	call, okCall := connect.CallInfoForServerContext(ctx)
	if !ok || !okCall {
		return nil, fault.New(fault.Unauthenticated, "rpc.enter")
	}
	p, ok := s.policies[spec.Procedure]
	if !ok {
		return nil, fault.New(fault.NotFound, "rpc.enter", fault.Detail("procedure: unknown"))
	}
	return s.door.enter(ctx, p, info.TLS(), call.RequestHeader().Get("Authorization"))
}

// fence wraps the stream, so that unary and streaming calls are checked alike,
// and ends the handler's context at the envelope's deadline.
func (s *Server) fence(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		ctx, until, stop := withLateDeadline(ctx)
		defer stop()
		conn := connFrom(ctx)
		defer conn.endWith(ctx)()
		err := next(ctx, spec, &fenced{
			ServerStream: stream, ctx: ctx, door: s.door, policy: s.policies[spec.Procedure],
			call: callFrom(ctx), validate: s.validate, until: until, arrived: conn.arrived,
		})
		return late(ctx, err)
	}
}

// late tells the end of a request's own time from a caller who has gone. ctx is
// that of withLateDeadline, before it is stopped.
func late(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) && fault.Is(fault.From(err, "rpc"), fault.Cancelled) {
		return fault.Wrap(err, fault.DeadlineExceeded, "rpc")
	}
	return err
}

// withLateDeadline makes a context whose deadline becomes known later, when the
// envelope was read. Its cause is then context.DeadlineExceeded.
func withLateDeadline(parent context.Context) (ctx context.Context, until func(time.Time), stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	var timer *time.Timer
	until = func(at time.Time) {
		if timer == nil {
			timer = time.AfterFunc(time.Until(at), func() { cancel(context.DeadlineExceeded) })
		}
	}
	stop = func() {
		if timer != nil {
			timer.Stop()
		}
		cancel(nil)
	}
	return ctx, until, stop
}
