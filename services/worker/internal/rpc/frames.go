package rpc

import (
	"context"
	"errors"
	"io"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	eventv1 "cofferdam.dev/pkg/gen/harness/event/v1"
	"cofferdam.dev/services/worker/internal/session"
)

// defaultEndGrace is as long as the door lets an answer be written once the
// request's time is over.
const defaultEndGrace = 2 * time.Second

// frame is what was there when the writer was free.
type frame struct {
	env       fence.Envelope
	authority session.Authority
	events    []event.Event
}

func (f *frame) proto() (*eventv1.EventFrame, error) {
	out := &eventv1.EventFrame{
		Envelope: f.env.Proto(), CapabilityJti: f.authority.CapabilityID, BootNonce: f.authority.BootNonce,
		Events: make([]*eventv1.Event, len(f.events)),
	}
	for i, e := range f.events {
		var err error
		if out.Events[i], err = eventproto.ToProto(e); err != nil {
			return nil, fault.Wrap(err, fault.Protocol, "rpc.frame")
		}
	}
	return out, nil
}

// stream writes a run's events until its terminal. When they cannot be written
// any more the run is cancelled: it ends with the stream that carries it.
func (s *Service) stream(ctx context.Context, run *session.Run, write func(*frame) error) error {
	f := frame{env: run.Envelope(), authority: s.session.Authority()}
	ctx, stop := untilGone(ctx, f.env.Deadline, s.endGrace)
	defer stop()
	for {
		var err error
		f.events, err = run.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = write(&f)
		}
		if err != nil {
			run.Disconnected()
			return err
		}
	}
}

// untilGone ends when the caller has gone, and a while after the deadline. At the
// deadline itself the context of the request ends, but the run still has to say
// that it did.
func untilGone(request context.Context, deadline time.Time, grace time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(request), deadline.Add(grace))
	stop := context.AfterFunc(request, func() {
		late := errors.Is(context.Cause(request), context.DeadlineExceeded) && time.Until(deadline) < time.Second
		if !late {
			cancel()
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}
