// Package workerclient speaks to a worker as the control plane does, on Connect
// and on the HTTP routes of the protocol, for the tests of a worker.
package workerclient

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/manifest"
	"cofferdam.dev/services/worker/internal/middleware"
	"cofferdam.dev/services/worker/internal/session"
)

// Client is one way to speak to a worker. Its errors are *fault.Error where the
// worker answers with one.
type Client interface {
	Ready(ctx context.Context) (Ready, error)
	Bind(ctx context.Context, b Bind) error
	// Start and Resume give the events to each, as they come, until there are no
	// more.
	Start(ctx context.Context, s Start, each func(Received)) error
	Resume(ctx context.Context, r Resume, each func(Received)) error
	Cancel(ctx context.Context, e fence.Envelope, reason event.CancelReason) (session.Cancelled, error)
	// Interrupt is nil where none is pending.
	Interrupt(ctx context.Context, e fence.Envelope) (*session.Interrupt, error)
	Shutdown(ctx context.Context, e fence.Envelope) error
}

// Ready is what a worker says of itself.
type Ready struct {
	session.Info
	ProtocolVersions []uint32
}

// Received is one event as it came.
type Received struct {
	Envelope                 fence.Envelope
	CapabilityJTI, BootNonce string
	Event                    event.Event
}

// Bind is a bind request.
type Bind struct {
	Envelope       fence.Envelope
	ConversationID string
	Expected       session.Info
	Construction   harness.Construction
	Manifests      manifest.Manifests
	Middleware     []middleware.Step
	// Brokers answer at one endpoint, under one identity.
	Brokers rpc.Endpoint
	Tokens  []session.Token
	Pending *session.Interrupt
	Grace   time.Duration
}

// Start is a turn.
type Start struct {
	Envelope                fence.Envelope
	ConversationID, Message string
	Files                   []harness.File
	Tokens                  []session.Token
}

// Resume is a decision.
type Resume struct {
	Envelope       fence.Envelope
	ConversationID string
	Interrupt      event.InterruptRequested
	Revision       uint64
	Decision       harness.Decision
	Tokens         []session.Token
}

func (b Bind) proto() *workerv1.BindRequest {
	endpoint := &workerv1.Endpoint{Address: b.Brokers.Address, SpiffeId: b.Brokers.ID.String()}
	c := b.Construction
	req := &workerv1.BindRequest{
		Envelope: b.Envelope.Proto(), ConversationId: b.ConversationID, Prompt: c.Prompt, UserContext: c.UserContext,
		Expected: &workerv1.ExpectedWorker{
			HarnessId: b.Expected.HarnessID, AdapterVersion: b.Expected.AdapterVersion,
			WorkerImageDigest: b.Expected.ImageDigest, BootNonce: b.Expected.BootNonce,
		},
		Agent: &workerv1.Agent{AgentId: c.AgentID, Version: 1, Name: c.AgentName, HarnessOptions: c.Options},
		Model: &workerv1.Model{
			Alias: c.Model.Alias, Wire: string(c.Model.Wire), MaxOutputTokens: uint32(c.Model.MaxOutputTokens), //nolint:gosec // the suite's own small numbers
			ContextTokens: uint32(c.Model.ContextTokens), Images: c.Model.Images, Documents: c.Model.Documents, //nolint:gosec // as above
		},
		Endpoints: &workerv1.Endpoints{ToolBroker: endpoint, ThreadState: endpoint, Memory: endpoint, FileBroker: endpoint, ModelProxy: endpoint},
		Limits: &workerv1.Limits{
			MaxModelCalls: uint32(c.Limits.ModelCalls), MaxToolCalls: uint32(c.Limits.ToolCalls), //nolint:gosec // as above
			MaxStateBytes: uint32(c.Limits.StateBytes), ShutdownGrace: durationpb.New(b.Grace), //nolint:gosec // as above
		},
		Interrupts: &workerv1.InterruptPolicy{FormInput: c.Interrupts.FormInput, ToolApproval: c.Interrupts.ToolApproval},
		Tokens:     tokens(b.Tokens),
	}
	for _, t := range c.Tools {
		req.Tools = append(req.Tools, &workerv1.Tool{
			ToolId: t.ID, OfferedName: t.OfferedName, Description: t.Description, InputSchema: t.InputSchema,
			ApprovalRequired: t.ApprovalRequired, ReadOnly: t.ReadOnly, Delegates: t.Delegates,
		})
	}
	for _, s := range b.Middleware {
		req.Middleware = append(req.Middleware, &workerv1.Middleware{Name: s.Name, Options: s.Options})
	}
	req.Skills, req.Files = manifestFiles(b.Manifests.Skills), manifestFiles(b.Manifests.Files)
	for _, s := range c.MemoryScopes {
		req.MemoryScopes = append(req.MemoryScopes, string(s))
	}
	if p := b.Pending; p != nil {
		req.PendingInterrupt = &workerv1.InterruptSummary{InterruptId: p.ID, InterruptType: string(p.Type), Revision: p.Revision}
	}
	return req
}

func manifestFiles(in []manifest.File) []*workerv1.ManifestFile {
	out := make([]*workerv1.ManifestFile, len(in))
	for i, f := range in {
		out[i] = &workerv1.ManifestFile{Path: f.Path, Handle: f.Handle, Size: f.Size, Sha256: f.SHA256[:], MimeType: f.MIMEType}
	}
	return out
}

func (s Start) proto() *workerv1.StartRunRequest {
	in := &workerv1.TurnInput{ConversationId: s.ConversationID, Message: s.Message}
	for _, f := range s.Files {
		in.Files = append(in.Files, &workerv1.InputFile{Handle: f.Handle, DisplayName: f.DisplayName, MimeType: f.MIMEType, Size: f.Size})
	}
	return &workerv1.StartRunRequest{Envelope: s.Envelope.Proto(), Input: in, Tokens: tokens(s.Tokens)}
}

func (r Resume) proto() (*workerv1.ResumeRunRequest, error) {
	body, err := json.Marshal(r.Interrupt)
	if err != nil {
		return nil, err
	}
	req := &workerv1.ResumeRunRequest{
		Envelope: r.Envelope.Proto(), InterruptId: r.Interrupt.InterruptID, InterruptRevision: r.Revision, ConversationId: r.ConversationID,
		Interrupt: body, Tokens: tokens(r.Tokens),
		Decision: &workerv1.ResumeDecision{Form: r.Decision.Form, Dismiss: r.Decision.Dismissed},
	}
	for _, t := range r.Decision.Tools {
		req.Decision.Tools = append(req.Decision.Tools, &workerv1.ToolDecision{
			ToolCallId: t.ToolCallID, Decision: string(t.Decision), Arguments: t.Arguments,
		})
	}
	return req, nil
}

func tokens(in []session.Token) []*workerv1.CallToken {
	out := make([]*workerv1.CallToken, len(in))
	for i, t := range in {
		out[i] = &workerv1.CallToken{Audience: t.Audience, Token: t.Token}
	}
	return out
}

func readyOf(r *workerv1.ReadyResponse) Ready {
	return Ready{ProtocolVersions: r.GetProtocolVersions(), Info: session.Info{
		Ready: r.GetReady(), HarnessID: r.GetHarnessId(), AdapterVersion: r.GetAdapterVersion(), ImageDigest: r.GetWorkerImageDigest(),
		BootNonce: r.GetBootNonce(), Bound: r.GetBound(),
	}}
}

func interruptOf(s *workerv1.InterruptSummary) *session.Interrupt {
	if s == nil {
		return nil
	}
	return &session.Interrupt{ID: s.GetInterruptId(), Type: event.InterruptType(s.GetInterruptType()), Revision: s.GetRevision()}
}
