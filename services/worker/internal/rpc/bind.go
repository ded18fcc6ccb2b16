package rpc

import (
	"crypto/sha256"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/manifest"
	"cofferdam.dev/services/worker/internal/middleware"
	"cofferdam.dev/services/worker/internal/session"
)

// bindOf takes the construction data. Its digest leaves the tokens out: they
// are minted anew for a bind that is repeated.
func bindOf(req *workerv1.BindRequest, capability session.Capability) (session.Bind, error) {
	env, err := fence.FromProto(req.GetEnvelope())
	if err != nil {
		return session.Bind{}, err
	}
	digest, err := bindDigest(req)
	if err != nil {
		return session.Bind{}, err
	}
	e := req.GetExpected()
	b := session.Bind{
		Envelope: env, ConversationID: req.GetConversationId(), Digest: digest, Capability: capability,
		Expected: session.Info{
			HarnessID: e.GetHarnessId(), AdapterVersion: e.GetAdapterVersion(),
			ImageDigest: e.GetWorkerImageDigest(), BootNonce: e.GetBootNonce(),
		},
		ContractVersion: req.GetContractVersion(),
		Construction:    construction(req),
		Manifests:       manifest.Manifests{Skills: manifestOf(req.GetSkills()), Files: manifestOf(req.GetFiles())},
		Pending:         pendingOf(req.GetPendingInterrupt()),
		ShutdownGrace:   req.GetLimits().GetShutdownGrace().AsDuration(),
		Tokens:          tokensOf(req.GetTokens()),
	}
	for _, m := range req.GetMiddleware() {
		b.Middleware = append(b.Middleware, middleware.Step{Name: m.GetName(), Options: m.GetOptions()})
	}
	return b, errors.Join(
		checkTools(b.Construction.Tools),
		object("agent.harness_options", b.Construction.Options),
		object("user_context", b.Construction.UserContext))
}

// schemaOptions are those with which the broker takes schemas from tool servers,
// whose properties may well differ in case only.
var schemaOptions = strictjson.Options{MaxDepth: maxSchemaDepth, AllowCaseVariants: true}

const maxSchemaDepth = 64

// checkTools refuses descriptors that name two tools alike: what a model calls
// must be one tool.
func checkTools(tools []harness.Tool) error {
	ids, names := make(map[string]bool, len(tools)), make(map[string]bool, len(tools))
	for _, t := range tools {
		if ids[t.ID] || names[t.OfferedName] {
			return fault.New(fault.InvalidRequest, "rpc.bind", fault.Detail("tools: two with one id or one offered name"))
		}
		ids[t.ID], names[t.OfferedName] = true, true
		if err := strictjson.Check(t.InputSchema, schemaOptions); err != nil || !opens(t.InputSchema, '{') {
			return fault.Wrap(err, fault.InvalidRequest, "rpc.bind", fault.Detail("tools[].input_schema: one JSON object"))
		}
	}
	return nil
}

func construction(req *workerv1.BindRequest) harness.Construction {
	c := harness.Construction{
		AgentID: req.GetAgent().GetAgentId(), AgentName: req.GetAgent().GetName(), Options: req.GetAgent().GetHarnessOptions(),
		Prompt: req.GetPrompt(), UserContext: req.GetUserContext(), Model: modelOf(req.GetModel()),
		Interrupts: harness.InterruptPolicy{
			FormInput: req.GetInterrupts().GetFormInput(), ToolApproval: req.GetInterrupts().GetToolApproval(),
		},
		Limits: harness.Limits{
			ModelCalls: int(req.GetLimits().GetMaxModelCalls()), ToolCalls: int(req.GetLimits().GetMaxToolCalls()),
			StateBytes: int(req.GetLimits().GetMaxStateBytes()),
		},
	}
	for _, t := range req.GetTools() {
		c.Tools = append(c.Tools, harness.Tool{
			ID: t.GetToolId(), OfferedName: t.GetOfferedName(), Description: t.GetDescription(), InputSchema: t.GetInputSchema(),
			ApprovalRequired: t.GetApprovalRequired(), ReadOnly: t.GetReadOnly(), Delegates: t.GetDelegates(),
		})
	}
	for _, s := range req.GetMemoryScopes() {
		c.MemoryScopes = append(c.MemoryScopes, harness.MemoryScope(s))
	}
	return c
}

func modelOf(m *workerv1.Model) harness.ModelConfig {
	wire := harness.Wire(m.GetWire())
	if wire == "" {
		wire = harness.WireOpenAIChat
	}
	return harness.ModelConfig{
		Alias: m.GetAlias(), Wire: wire, MaxOutputTokens: int(m.GetMaxOutputTokens()), ContextTokens: int(m.GetContextTokens()),
		Images: m.GetImages(), Documents: m.GetDocuments(),
	}
}

// manifestOf takes a manifest; the schema has checked how long each digest is.
func manifestOf(in []*workerv1.ManifestFile) []manifest.File {
	var out []manifest.File
	for _, f := range in {
		m := manifest.File{Path: f.GetPath(), Handle: f.GetHandle(), Size: f.GetSize(), MIMEType: f.GetMimeType()}
		copy(m.SHA256[:], f.GetSha256())
		out = append(out, m)
	}
	return out
}

// pendingOf gives nil where none is pending.
func pendingOf(i *workerv1.InterruptSummary) *session.Interrupt {
	if i == nil {
		return nil
	}
	return &session.Interrupt{ID: i.GetInterruptId(), Type: event.InterruptType(i.GetInterruptType()), Revision: i.GetRevision()}
}

func bindDigest(req *workerv1.BindRequest) ([sha256.Size]byte, error) {
	bare, ok := proto.Clone(req).(*workerv1.BindRequest)
	if !ok {
		return [sha256.Size]byte{}, fault.New(fault.Internal, "rpc.bind")
	}
	bare.Tokens = nil
	// A repeated bind has another request id, trace, key and deadline, and means
	// the same.
	bare.Envelope.RequestId, bare.Envelope.Traceparent, bare.Envelope.IdempotencyKey, bare.Envelope.Deadline = "", "", "", nil
	// So does one with other handles for the same files. What is pending is state,
	// and no construction data.
	for _, f := range slices.Concat(bare.GetSkills(), bare.GetFiles()) {
		f.Handle = ""
	}
	bare.PendingInterrupt = nil
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(bare)
	if err != nil {
		return [sha256.Size]byte{}, fault.Wrap(err, fault.Internal, "rpc.bind")
	}
	return sha256.Sum256(raw), nil
}

func tokensOf(in []*workerv1.CallToken) []session.Token {
	out := make([]session.Token, len(in))
	for i, t := range in {
		out[i] = session.Token{Audience: t.GetAudience(), Token: t.GetToken()}
	}
	return out
}
