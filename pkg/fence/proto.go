package fence

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/fault"
	fencev1 "cofferdam.dev/pkg/gen/harness/fence/v1"
)

// FromProto takes an envelope from the wire. Errors: invalid_request without
// an envelope or deadline, protocol_unsupported for another protocol version.
// The bounds of the fields are protovalidate's.
func FromProto(p *fencev1.Envelope) (Envelope, error) {
	if p == nil {
		return Envelope{}, fault.New(fault.InvalidRequest, "fence.FromProto", fault.Detail("envelope: required"))
	}
	if p.GetProtocolVersion() != ProtocolVersion {
		return Envelope{}, fault.New(fault.ProtocolUnsupported, "fence.FromProto")
	}
	if err := p.GetDeadline().CheckValid(); err != nil {
		return Envelope{}, fault.Wrap(err, fault.InvalidRequest, "fence.FromProto", fault.Detail("envelope.deadline: required, a valid time"))
	}
	return Envelope{
		BindingID:      p.GetBindingId(),
		Epoch:          p.GetEpoch(),
		Generation:     p.GetLeaseGeneration(),
		RunID:          p.GetRunId(),
		RequestID:      p.GetRequestId(),
		IdempotencyKey: p.GetIdempotencyKey(),
		Traceparent:    p.GetTraceparent(),
		Deadline:       p.GetDeadline().AsTime(),
	}, nil
}

// Proto is the envelope as it travels.
func (e Envelope) Proto() *fencev1.Envelope {
	return &fencev1.Envelope{
		ProtocolVersion: ProtocolVersion,
		BindingId:       e.BindingID,
		Epoch:           e.Epoch,
		LeaseGeneration: e.Generation,
		RunId:           e.RunID,
		RequestId:       e.RequestID,
		IdempotencyKey:  e.IdempotencyKey,
		Traceparent:     e.Traceparent,
		Deadline:        timestamppb.New(e.Deadline),
	}
}
