package rpc

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	fencev1 "cofferdam.dev/pkg/gen/harness/fence/v1"
)

// EnvelopeHeader carries the envelope of a plain HTTP request.
const EnvelopeHeader = "Cofferdam-Envelope"

const maxEnvelopeHeader = 4 << 10

// HandleHTTP serves a plain HTTP route behind the same door as the procedures.
// With a fence the request carries its envelope in the header
// Cofferdam-Envelope; a handler that finds the envelope in the body instead
// takes NoFence and calls Admit itself.
func (s *Server) HandleHTTP(pattern string, p Policy, h http.Handler) {
	s.err = errors.Join(s.err, s.checkPolicy(pattern, p))
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := s.serveHTTP(w, r, p, h); err != nil {
			fault.WriteHTTP(w, finish(r.Context(), s.door.logger, pattern, err))
		}
	})
}

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request, p Policy, h http.Handler) (err error) {
	ctx := r.Context()
	c, err := s.door.enter(ctx, p, r.TLS, r.Header.Get("Authorization"))
	if err != nil {
		return err
	}
	// The trace goes on as that of a procedure does: whoever may call is trusted to say which.
	ctx, span := s.tel.Tracer.Start(s.tel.Propagator.Extract(ctx, propagation.HeaderCarrier(r.Header)), r.Pattern, trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	ctx, until, stop := withLateDeadline(withCall(ctx, c))
	defer stop()
	defer func() { err = late(ctx, err) }()
	c.until = until
	conn := connFrom(ctx)
	defer conn.endWith(ctx)()
	if p.Fence != NoFence {
		env, err := DecodeEnvelope(r.Header.Get(EnvelopeHeader))
		if err != nil {
			return err
		}
		until(env.Deadline)
		if err := s.door.admit(ctx, p, c, env); err != nil {
			return err
		}
	}
	r = r.WithContext(ctx)
	r.Body = arriving{http.MaxBytesReader(w, r.Body, int64(p.maxBytes())), conn}
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler { //nolint:errorlint // net/http compares the panic value itself
			panic(v) // the handler resets its stream on purpose
		}
		s.door.logger.ErrorContext(ctx, "handler panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		panic(http.ErrAbortHandler) // the answer may have begun: a reset is the only honest end
	}()
	h.ServeHTTP(w, r)
	return nil
}

// Admit checks a message that a plain HTTP handler decoded from its request's
// body, as the door does with the others: its envelope, the fence, the rules of
// its schema. The request's context ends at the envelope's deadline.
func (s *Server) Admit(r *http.Request, p Policy, m proto.Message) error {
	c := callFrom(r.Context())
	if c == nil || c.until == nil {
		return fault.New(fault.Unauthenticated, "rpc.Admit")
	}
	return s.door.message(r.Context(), p, c, m, s.validate, c.until)
}

// EncodeEnvelope is the header form of an envelope: unpadded base64url of its
// protobuf encoding.
func EncodeEnvelope(e fence.Envelope) (string, error) {
	b, err := proto.Marshal(e.Proto())
	if err != nil {
		return "", fault.Wrap(err, fault.Internal, "rpc.EncodeEnvelope")
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// DecodeEnvelope reads the header form. Errors: invalid_request and
// protocol_unsupported.
func DecodeEnvelope(header string) (fence.Envelope, error) {
	if header == "" || len(header) > maxEnvelopeHeader {
		return fence.Envelope{}, fault.New(fault.InvalidRequest, "rpc.DecodeEnvelope", fault.Detail(EnvelopeHeader+": required, at most 4 KiB"))
	}
	b, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		return fence.Envelope{}, fault.Wrap(err, fault.InvalidRequest, "rpc.DecodeEnvelope", fault.Detail(EnvelopeHeader+": unpadded base64url"))
	}
	var p fencev1.Envelope
	if err := proto.Unmarshal(b, &p); err != nil {
		return fence.Envelope{}, fault.Wrap(err, fault.InvalidRequest, "rpc.DecodeEnvelope", fault.Detail(EnvelopeHeader+": protobuf of harness.fence.v1.Envelope"))
	}
	return fence.FromProto(&p)
}
