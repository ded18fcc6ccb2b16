// Package workerclient speaks the worker's Connect wire for the control plane.
package workerclient

import (
	"context"
	"net/http"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// Dialer makes clients of workers.
type Dialer struct {
	source identity.Source
	tel    *telemetry.Telemetry
}

// NewDialer makes a Dialer that shows the control plane's identity.
func NewDialer(source identity.Source, tel *telemetry.Telemetry) *Dialer {
	return &Dialer{source: source, tel: tel}
}

// Dial makes a client that accepts the identity of the instance and no other.
func (d *Dialer) Dial(in sandbox.Instance) (worker.Client, error) {
	ep := rpc.Endpoint{Address: in.Address, ID: in.ID}
	hc := ep.HTTPClient(d.source)
	cc, err := rpc.NewClient(hc, ep.BaseURL(), d.tel)
	if err != nil {
		return nil, err
	}
	return &client{http: hc, rpc: workerv1connect.NewWorkerServiceClient(cc)}, nil
}

type client struct {
	http *http.Client
	rpc  workerv1connect.WorkerServiceClient
}

func (c *client) Close() { c.http.CloseIdleConnections() }

func (c *client) Ready(ctx context.Context) (worker.Ready, error) {
	r, err := c.rpc.Ready(ctx, &workerv1.ReadyRequest{})
	if err != nil {
		return worker.Ready{}, received(err, "workerclient.Ready")
	}
	return worker.Ready{
		Ready: r.GetReady(), ProtocolVersions: r.GetProtocolVersions(), HarnessID: r.GetHarnessId(),
		AdapterVersion: r.GetAdapterVersion(), ImageDigest: r.GetWorkerImageDigest(), BootNonce: r.GetBootNonce(), Bound: r.GetBound(),
	}, nil
}

func (c *client) Bind(ctx context.Context, token string, b worker.Binding) error {
	r, err := c.rpc.Bind(rpc.WithToken(ctx, token), bindRequest(b))
	if err != nil {
		return received(err, "workerclient.Bind")
	}
	same := r.GetBindingId() == b.Envelope.BindingID && r.GetEpoch() == b.Envelope.Epoch &&
		r.GetLeaseGeneration() == b.Envelope.Generation && r.GetBootNonce() == b.Expected.BootNonce
	if !same {
		return fault.New(fault.BindingConflict, "workerclient.Bind")
	}
	return nil
}

func (c *client) Start(ctx context.Context, token string, t worker.Turn) (worker.Stream, error) {
	s, err := c.rpc.StartRun(rpc.WithToken(ctx, token), startRequest(t))
	if err != nil {
		return nil, received(err, "workerclient.Start")
	}
	return stream{started{s}, s.Close}, nil
}

func (c *client) Resume(ctx context.Context, token string, r worker.Resume) (worker.Stream, error) {
	s, err := c.rpc.ResumeRun(rpc.WithToken(ctx, token), resumeRequest(r))
	if err != nil {
		return nil, received(err, "workerclient.Resume")
	}
	return stream{resumed{s}, s.Close}, nil
}

func (c *client) Cancel(ctx context.Context, token string, env fence.Envelope, reason string) (worker.Cancelled, error) {
	r, err := c.rpc.CancelRun(rpc.WithToken(ctx, token), &workerv1.CancelRunRequest{Envelope: env.Proto(), Reason: reason})
	if err != nil {
		return worker.Cancelled{}, received(err, "workerclient.Cancel")
	}
	return worker.Cancelled{Active: r.GetActive(), Stopped: r.GetStopped()}, nil
}

func endpoint(e rpc.Endpoint) *workerv1.Endpoint {
	return &workerv1.Endpoint{Address: e.Address, SpiffeId: e.ID.String()}
}

func tokens(in []worker.Token) []*workerv1.CallToken {
	out := make([]*workerv1.CallToken, len(in))
	for i, t := range in {
		out[i] = &workerv1.CallToken{Audience: t.Audience, Token: t.Token}
	}
	return out
}
