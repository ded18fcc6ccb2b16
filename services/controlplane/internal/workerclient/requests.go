package workerclient

import (
	"google.golang.org/protobuf/types/known/durationpb"

	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/services/controlplane/internal/worker"
)

func bindRequest(b worker.Binding) *workerv1.BindRequest {
	req := &workerv1.BindRequest{
		Envelope:       b.Envelope.Proto(),
		ConversationId: b.ConversationID,
		Expected: &workerv1.ExpectedWorker{
			HarnessId: b.Expected.HarnessID, AdapterVersion: b.Expected.AdapterVersion,
			WorkerImageDigest: b.Expected.ImageDigest, BootNonce: b.Expected.BootNonce,
		},
		Agent: &workerv1.Agent{AgentId: b.Agent.ID, Version: b.Agent.Version, Name: b.Agent.Name, HarnessOptions: b.Agent.HarnessOptions},
		Model: &workerv1.Model{
			Alias: b.Agent.Model.Alias, MaxOutputTokens: b.Agent.Model.MaxOutputTokens, Wire: b.Agent.Model.Wire,
			ContextTokens: b.Agent.Model.ContextTokens, Images: b.Agent.Model.Images, Documents: b.Agent.Model.Documents,
		},
		Prompt: b.Agent.Prompt,
		Endpoints: &workerv1.Endpoints{
			ToolBroker: endpoint(b.Endpoints.ToolBroker), ThreadState: endpoint(b.Endpoints.ThreadState), Memory: endpoint(b.Endpoints.Memory),
			FileBroker: endpoint(b.Endpoints.FileBroker), ModelProxy: endpoint(b.Endpoints.ModelProxy),
		},
		Limits: &workerv1.Limits{
			MaxModelCalls: b.Limits.MaxModelCalls, MaxToolCalls: b.Limits.MaxToolCalls,
			MaxStateBytes: b.Limits.MaxStateBytes, ShutdownGrace: durationpb.New(b.Limits.ShutdownGrace),
		},
		Tokens:          tokens(b.Tokens),
		ContractVersion: contractVersion,
		Interrupts:      &workerv1.InterruptPolicy{FormInput: b.Interrupts.FormInput, ToolApproval: b.Interrupts.ToolApproval},
		MemoryScopes:    b.MemoryScopes,
		Skills:          manifest(b.Skills), Files: manifest(b.Files),
	}
	for _, t := range b.Tools {
		req.Tools = append(req.Tools, &workerv1.Tool{
			ToolId: t.ID, OfferedName: t.OfferedName, Description: t.Description, InputSchema: t.InputSchema,
			ApprovalRequired: t.ApprovalRequired, ReadOnly: t.ReadOnly, Delegates: t.Delegates,
		})
	}
	for _, m := range b.Middleware {
		req.Middleware = append(req.Middleware, &workerv1.Middleware{Name: m.Name, Options: m.Options})
	}
	return req
}

func manifest(in []worker.ManifestFile) []*workerv1.ManifestFile {
	out := make([]*workerv1.ManifestFile, len(in))
	for i, f := range in {
		out[i] = &workerv1.ManifestFile{Path: f.Path, Handle: f.Handle, Size: f.Size, Sha256: f.SHA256[:], MimeType: f.MIMEType}
	}
	return out
}

// contractVersion of the Harness Adapter contract.
const contractVersion = 1

func startRequest(t worker.Turn) *workerv1.StartRunRequest {
	in := &workerv1.TurnInput{ConversationId: t.ConversationID, Message: t.Message, ClientContext: t.ClientContext, Uploads: uploads(t.Uploads)}
	for _, f := range t.Files {
		in.Files = append(in.Files, &workerv1.InputFile{Handle: f.Handle, DisplayName: f.DisplayName, MimeType: f.MIMEType, Size: f.Size})
	}
	return &workerv1.StartRunRequest{Envelope: t.Envelope.Proto(), Input: in, Tokens: tokens(t.Tokens)}
}

func resumeRequest(r worker.Resume) *workerv1.ResumeRunRequest {
	d := &workerv1.ResumeDecision{Form: []byte(r.Decision.Form), Dismiss: r.Decision.Dismiss}
	for _, t := range r.Decision.Tools {
		d.Tools = append(d.Tools, &workerv1.ToolDecision{ToolCallId: t.ToolCallID, Decision: string(t.Decision), Arguments: []byte(t.Arguments)})
	}
	return &workerv1.ResumeRunRequest{
		Envelope: r.Envelope.Proto(), InterruptId: r.InterruptID, InterruptRevision: r.Revision, Tokens: tokens(r.Tokens),
		ConversationId: r.ConversationID, Interrupt: r.Interrupt, Decision: d, Uploads: uploads(r.Uploads), CarriedCalls: r.Carried,
	}
}

func uploads(in []worker.Upload) []*workerv1.UploadHandle {
	out := make([]*workerv1.UploadHandle, len(in))
	for i, u := range in {
		out[i] = &workerv1.UploadHandle{Handle: u.Handle, MaxBytes: u.MaxBytes}
	}
	return out
}
