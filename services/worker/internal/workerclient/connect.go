package workerclient

import (
	"context"
	"errors"
	"fmt"
	"io"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	"cofferdam.dev/pkg/fence"
	eventv1 "cofferdam.dev/pkg/gen/harness/event/v1"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/worker/internal/session"
)

// NewConnect speaks Connect.
func NewConnect(c *rpctest.Client) Client {
	return overConnect{workerv1connect.NewWorkerServiceClient(c.RPC), c.Token}
}

type overConnect struct {
	client workerv1connect.WorkerServiceClient
	token  string
}

func (c overConnect) with(ctx context.Context) context.Context { return rpc.WithToken(ctx, c.token) }

func (c overConnect) Ready(ctx context.Context) (Ready, error) {
	res, err := c.client.Ready(ctx, &workerv1.ReadyRequest{})
	return readyOf(res), err
}

func (c overConnect) Bind(ctx context.Context, b Bind) error {
	_, err := c.client.Bind(c.with(ctx), b.proto())
	return err
}

func (c overConnect) Start(ctx context.Context, s Start, each func(Received)) error {
	stream, err := c.client.StartRun(c.with(ctx), s.proto())
	if err != nil {
		return err
	}
	return Frames(each, stream.Close, func() (*eventv1.EventFrame, error) {
		m, err := stream.Receive()
		return m.GetFrame(), err
	})
}

func (c overConnect) Resume(ctx context.Context, r Resume, each func(Received)) error {
	req, err := r.proto()
	if err != nil {
		return err
	}
	stream, err := c.client.ResumeRun(c.with(ctx), req)
	if err != nil {
		return err
	}
	return Frames(each, stream.Close, func() (*eventv1.EventFrame, error) {
		m, err := stream.Receive()
		return m.GetFrame(), err
	})
}

// Frames gives the events of a stream to each, until there are no more, and ends
// it.
func Frames(each func(Received), end func() error, next func() (*eventv1.EventFrame, error)) (err error) {
	defer func() { err = errors.Join(err, end()) }()
	for {
		f, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		env, err := fence.FromProto(f.GetEnvelope())
		if err != nil {
			return err
		}
		if n := len(f.GetEvents()); n == 0 || n > event.MaxFrameEvents {
			return fmt.Errorf("a frame of %d events", n)
		}
		for _, p := range f.GetEvents() {
			e, err := eventproto.FromProto(p)
			if err != nil {
				return err
			}
			each(Received{env, f.GetCapabilityJti(), f.GetBootNonce(), e})
		}
	}
}

func (c overConnect) Cancel(ctx context.Context, e fence.Envelope, reason event.CancelReason) (session.Cancelled, error) {
	res, err := c.client.CancelRun(c.with(ctx), &workerv1.CancelRunRequest{Envelope: e.Proto(), Reason: string(reason)})
	return session.Cancelled{Active: res.GetActive(), Stopped: res.GetStopped()}, err
}

func (c overConnect) Interrupt(ctx context.Context, e fence.Envelope) (*session.Interrupt, error) {
	res, err := c.client.GetInterrupt(c.with(ctx), &workerv1.GetInterruptRequest{Envelope: e.Proto()})
	return interruptOf(res.GetInterrupt()), err
}

func (c overConnect) Shutdown(ctx context.Context, e fence.Envelope) error {
	_, err := c.client.Shutdown(c.with(ctx), &workerv1.ShutdownRequest{Envelope: e.Proto()})
	return err
}
