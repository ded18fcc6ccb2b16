package rpc

import (
	"context"
	"errors"
	"io"
	"time"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	fencev1 "cofferdam.dev/pkg/gen/harness/fence/v1"
)

// enveloped is a request that carries the fencing envelope.
type enveloped interface{ GetEnvelope() *fencev1.Envelope }

// fenced checks every message that a handler receives: its envelope, the fence,
// and the rules of its schema.
type fenced struct {
	connect.ServerStream
	ctx      context.Context //nolint:containedctx // lives as long as the stream, which has no other way to get it
	door     *door
	policy   Policy
	call     *call
	validate protovalidate.Validator
	// until ends the handler's context at a time.
	until func(time.Time)
	// arrived lifts the bound on the first message.
	arrived func()
}

func (s *fenced) Receive(msg any) error {
	if err := s.ServerStream.Receive(msg); err != nil {
		return received(err)
	}
	s.arrived()
	m, ok := msg.(proto.Message)
	if !ok {
		return fault.Wrap(errors.New("message is not protobuf"), fault.Internal, "rpc.Receive")
	}
	return s.door.message(s.ctx, s.policy, s.call, m, s.validate, s.until)
}

// message checks one message: its envelope, the fence, and the rules of its
// schema.
func (d *door) message(ctx context.Context, p Policy, c *call, m proto.Message, v protovalidate.Validator, until func(time.Time)) error {
	if em, has := m.(enveloped); has {
		env, err := fence.FromProto(em.GetEnvelope())
		if err != nil {
			return err
		}
		until(env.Deadline)
		if err := d.admit(ctx, p, c, env); err != nil {
			return err
		}
	} else if p.Fence != NoFence {
		return fault.Wrap(errors.New("fenced procedure whose request has no envelope"), fault.Internal, "rpc.message")
	}
	return validate(v, m)
}

// validate applies the rules of the schema. A violation names field and rule,
// never the value.
func validate(v protovalidate.Validator, m proto.Message) error {
	err := v.Validate(m)
	var ve *protovalidate.ValidationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ve) && len(ve.Violations) > 0:
		first := ve.Violations[0].Proto
		return fault.New(fault.InvalidRequest, "rpc.validate",
			fault.Detail(protovalidate.FieldPathString(first.GetField())+": "+first.GetRuleId()))
	default:
		return fault.Wrap(err, fault.Internal, "rpc.validate")
	}
}

// received gives a failed receive its code. What the transport says itself
// (malformed, too large) is the caller's fault.
func received(err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return fault.From(err, "rpc.Receive")
	}
	switch ce.Code() {
	case connect.CodeResourceExhausted:
		return fault.Wrap(err, fault.RequestTooLarge, "rpc.Receive")
	case connect.CodeInvalidArgument:
		return fault.Wrap(err, fault.InvalidRequest, "rpc.Receive", fault.Detail("body: does not decode as the request's message"))
	case connect.CodeUnimplemented:
		return fault.Wrap(err, fault.InvalidRequest, "rpc.Receive", fault.Detail("body: exactly one message"))
	default:
		return fault.FromConnect(err, "rpc.Receive")
	}
}
