// Package workerclient speaks the worker's Connect wire for the control plane.
package workerclient

import (
	"context"
	"net/http"

	"google.golang.org/protobuf/types/known/durationpb"

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
	return stream{s}, nil
}

func (c *client) Cancel(ctx context.Context, token string, env fence.Envelope, reason string) (worker.Cancelled, error) {
	r, err := c.rpc.CancelRun(rpc.WithToken(ctx, token), &workerv1.CancelRunRequest{Envelope: env.Proto(), Reason: reason})
	if err != nil {
		return worker.Cancelled{}, received(err, "workerclient.Cancel")
	}
	return worker.Cancelled{Active: r.GetActive(), Stopped: r.GetStopped()}, nil
}

func bindRequest(b worker.Binding) *workerv1.BindRequest {
	req := &workerv1.BindRequest{
		Envelope:       b.Envelope.Proto(),
		ConversationId: b.ConversationID,
		Expected: &workerv1.ExpectedWorker{
			HarnessId: b.Expected.HarnessID, AdapterVersion: b.Expected.AdapterVersion,
			WorkerImageDigest: b.Expected.ImageDigest, BootNonce: b.Expected.BootNonce,
		},
		Agent:  &workerv1.Agent{AgentId: b.Agent.ID, Version: b.Agent.Version, Name: b.Agent.Name, HarnessOptions: b.Agent.HarnessOptions},
		Model:  &workerv1.Model{Alias: b.Agent.ModelAlias, MaxOutputTokens: b.Agent.MaxOutputTokens},
		Prompt: b.Agent.Prompt,
		Endpoints: &workerv1.Endpoints{
			ToolBroker: endpoint(b.Endpoints.ToolBroker), ThreadState: endpoint(b.Endpoints.ThreadState), Memory: endpoint(b.Endpoints.Memory),
			FileBroker: endpoint(b.Endpoints.FileBroker), ModelProxy: endpoint(b.Endpoints.ModelProxy),
		},
		Limits: &workerv1.Limits{
			MaxModelCalls: b.Limits.MaxModelCalls, MaxToolCalls: b.Limits.MaxToolCalls,
			MaxStateBytes: b.Limits.MaxStateBytes, ShutdownGrace: durationpb.New(b.Limits.ShutdownGrace),
		},
		Tokens: tokens(b.Tokens),
	}
	for _, t := range b.Tools {
		req.Tools = append(req.Tools, &workerv1.Tool{ToolId: t.ID, OfferedName: t.OfferedName, Description: t.Description, InputSchema: t.InputSchema})
	}
	return req
}

func startRequest(t worker.Turn) *workerv1.StartRunRequest {
	in := &workerv1.TurnInput{ConversationId: t.ConversationID, Message: t.Message, ClientContext: t.ClientContext}
	for _, f := range t.Files {
		in.Files = append(in.Files, &workerv1.InputFile{Handle: f.Handle, DisplayName: f.DisplayName, MimeType: f.MIMEType, Size: f.Size})
	}
	return &workerv1.StartRunRequest{Envelope: t.Envelope.Proto(), Input: in, Tokens: tokens(t.Tokens)}
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
