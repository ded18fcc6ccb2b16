package workerclient

import (
	"context"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	eventv1 "cofferdam.dev/pkg/gen/harness/event/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// maxFrameEvents bounds one frame; a frame without an event says nothing.
const maxFrameEvents = 64

var errNoEvents = errors.New("frame has no event")

type stream struct {
	frames interface {
		next() (*eventv1.EventFrame, error)
	}
	close func() error
}

// started and resumed are the two streams of the wire, which differ in name only.
type (
	started struct {
		s workerv1connect.WorkerServiceStartRunClientStream
	}
	resumed struct {
		s workerv1connect.WorkerServiceResumeRunClientStream
	}
)

func (s started) next() (*eventv1.EventFrame, error) {
	m, err := s.s.Receive()
	return m.GetFrame(), err
}

func (s resumed) next() (*eventv1.EventFrame, error) {
	m, err := s.s.Receive()
	return m.GetFrame(), err
}

// Next ends with io.EOF where the worker ended the stream. What the worker sends
// and may not is protocol; whether the events are lawful is the journal's
// question.
func (s stream) Next() (worker.Frame, error) {
	const op = "workerclient.Next"
	f, err := s.frames.next()
	if err != nil {
		return worker.Frame{}, received(err, op)
	}
	env, err := fence.FromProto(f.GetEnvelope())
	if err != nil {
		return worker.Frame{}, fault.Wrap(err, fault.Protocol, op)
	}
	out := worker.Frame{Envelope: env, CapabilityID: f.GetCapabilityJti(), BootNonce: f.GetBootNonce(), Bytes: proto.Size(f)}
	switch n := len(f.GetEvents()); {
	case n == 0:
		return worker.Frame{}, fault.Wrap(errNoEvents, fault.Protocol, op)
	case n > maxFrameEvents:
		return worker.Frame{}, fault.Wrap(fmt.Errorf("frame has %d events", n), fault.Protocol, op)
	}
	for _, p := range f.GetEvents() {
		e, err := eventproto.FromProto(p)
		if errors.Is(err, event.ErrEmptyDelta) {
			continue // the contract drops it
		}
		if err != nil {
			return worker.Frame{}, fault.Wrap(err, fault.Protocol, op)
		}
		out.Events = append(out.Events, e)
	}
	return out, nil
}

// Close ends the stream, also one that was not read to its end.
func (s stream) Close() error { return s.close() }

// received tells the three apart that an error can be: what cannot be taken (too
// large, not protobuf), a connection that broke, and what the worker says. The
// clean end of a stream is io.EOF and nothing else.
func received(err error, op string) error {
	if errors.Is(err, io.EOF) { // the network's own is unexpected
		return io.EOF
	}
	var ce *connect.Error
	if !errors.As(err, &ce) || ce.IsRemote() {
		return err
	}
	switch ce.Code() { //nolint:exhaustive // with every other code the connection broke, and it says so
	case connect.CodeResourceExhausted, connect.CodeInvalidArgument:
		return fault.Wrap(err, fault.Protocol, op)
	case connect.CodeCanceled:
		if !errors.Is(err, context.Canceled) { // reset by the other side
			return fault.Wrap(err, fault.DependencyUnavailable, op)
		}
	}
	return err
}
