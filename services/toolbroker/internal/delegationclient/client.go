// Package delegationclient asks the control plane to run another agent.
package delegationclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptrace"
	"sync/atomic"

	"connectrpc.com/connect/v2"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	delegationv1 "cofferdam.dev/pkg/gen/harness/delegation/v1"
	"cofferdam.dev/pkg/gen/harness/delegation/v1/delegationv1connect"
	"cofferdam.dev/services/toolbroker/internal/delegate"
)

// errShort is a stream that ended before its run did.
var errShort = errors.New("the control plane's stream ended before the run")

// Client delegates. It is a delegate.Runs, and safe for concurrent use.
type Client struct {
	rpc delegationv1connect.DelegationServiceClient
}

// New makes a Client on a connection to the control plane.
func New(c *connect.Client) *Client {
	return &Client{delegationv1connect.NewDelegationServiceClient(c)}
}

// Delegate implements delegate.Runs.
func (c *Client) Delegate(ctx context.Context, env fence.Envelope, agentID, message string) (delegate.Run, error) {
	const op = "delegationclient.Delegate"
	var connected atomic.Bool
	s, err := c.rpc.Delegate(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}), &delegationv1.DelegateRequest{Envelope: env.Proto(), AgentId: agentID, Message: message})
	var first *delegationv1.DelegateResponse
	if err == nil {
		if first, err = s.Receive(); err == nil && first.GetRun() == nil {
			err = fault.New(fault.Protocol, op)
		}
		if errors.Is(err, io.EOF) {
			err = fault.Wrap(errShort, fault.DependencyUnavailable, op)
		}
		if err != nil {
			err = errors.Join(err, ignoreEnd(s.Close()))
		}
	}
	if err != nil && !connected.Load() {
		return nil, fmt.Errorf("%w: %w", delegate.ErrUnreachable, err)
	}
	if err != nil {
		return nil, err
	}
	return &run{DelegatedRun: first.GetRun(), stream: s}, nil
}

type run struct {
	*delegationv1.DelegatedRun

	stream delegationv1connect.DelegationServiceDelegateClientStream
}

// ID implements delegate.Run.
func (r *run) ID() string { return r.GetRunId() }

// AgentName implements delegate.Run.
func (r *run) AgentName() string { return r.GetAgentName() }

// Next implements delegate.Run.
func (r *run) Next() (event.Event, error) {
	const op = "delegationclient.Next"
	m, err := r.stream.Receive()
	switch {
	case errors.Is(err, io.EOF):
		return event.Event{}, fault.Wrap(errShort, fault.DependencyUnavailable, op)
	case err != nil:
		return event.Event{}, err
	case m.GetEvent() == nil:
		return event.Event{}, fault.New(fault.Protocol, op)
	}
	e, err := eventproto.FromProto(m.GetEvent())
	if err != nil {
		return event.Event{}, fault.Wrap(err, fault.Protocol, op)
	}
	return e, nil
}

// Close ends the stream, and with it the run where it has not ended.
func (r *run) Close() error { return ignoreEnd(r.stream.Close()) }

func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
