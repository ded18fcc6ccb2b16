package rpc

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/url"
	"path"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/facadeclient"
	"cofferdam.dev/services/worker/internal/harness"
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
		Construction:  construction(req),
		ShutdownGrace: req.GetLimits().GetShutdownGrace().AsDuration(),
		Tokens:        tokensOf(req.GetTokens()),
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
			ApprovalRequired: t.GetApprovalRequired(), ReadOnly: t.GetReadOnly(),
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

func bindDigest(req *workerv1.BindRequest) ([sha256.Size]byte, error) {
	bare, ok := proto.Clone(req).(*workerv1.BindRequest)
	if !ok {
		return [sha256.Size]byte{}, fault.New(fault.Internal, "rpc.bind")
	}
	bare.Tokens = nil
	// A repeated bind has another request id, trace, key and deadline, and means
	// the same.
	bare.Envelope.RequestId, bare.Envelope.Traceparent, bare.Envelope.IdempotencyKey, bare.Envelope.Deadline = "", "", "", nil
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

// endpointsOf takes the addresses that the worker may call. Each is a service of
// the worker's own trust domain: another sandbox, or whoever else has an
// identity, is none.
func endpointsOf(req *workerv1.BindRequest, td spiffeid.TrustDomain) (facadeclient.Endpoints, error) {
	e := req.GetEndpoints()
	out := facadeclient.Endpoints{ModelAlias: req.GetModel().GetAlias()}
	var memory rpc.Endpoint // checked like the others, and not used by this version
	for _, p := range []struct {
		field string
		to    *rpc.Endpoint
		from  *workerv1.Endpoint
	}{
		{"tool_broker", &out.ToolBroker, e.GetToolBroker()},
		{"thread_state", &out.ThreadState, e.GetThreadState()},
		{"memory", &memory, e.GetMemory()},
		{"file_broker", &out.FileBroker, e.GetFileBroker()},
		{"model_proxy", &out.ModelProxy, e.GetModelProxy()},
	} {
		ep, err := rpc.ParseEndpoint(p.from.GetAddress(), p.from.GetSpiffeId())
		switch {
		case err != nil || !isService(ep.ID, td):
			return out, fault.Wrap(err, fault.InvalidRequest, "rpc.bind", fault.Detail("endpoints."+p.field+".spiffe_id: a service of this trust domain"))
		case !isAddress(ep.Address):
			return out, fault.New(fault.InvalidRequest, "rpc.bind", fault.Detail("endpoints."+p.field+".address: https://host:port or unix:///path"))
		}
		*p.to = ep
	}
	return out, nil
}

func isService(id spiffeid.ID, td spiffeid.TrustDomain) bool {
	name, ok := strings.CutPrefix(id.Path(), "/svc/")
	return ok && id == identity.Service(td, name)
}

func isAddress(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "https":
		return s == "https://"+u.Host && u.Hostname() != ""
	case "unix":
		return s == "unix://"+u.Path && path.IsAbs(u.Path)
	default:
		return false
	}
}

func turnOf(req *workerv1.StartRunRequest, env fence.Envelope) (harness.Turn, error) {
	in := req.GetInput()
	t := harness.Turn{
		RunID: env.RunID, ConversationID: in.GetConversationId(), Message: in.GetMessage(),
		ClientContext: in.GetClientContext(), Deadline: env.Deadline,
	}
	for _, u := range in.GetUploads() {
		t.Uploads = append(t.Uploads, harness.Upload{Handle: u.GetHandle(), MaxBytes: u.GetMaxBytes()})
	}
	for _, f := range in.GetFiles() {
		t.Files = append(t.Files, harness.File{Handle: f.GetHandle(), DisplayName: f.GetDisplayName(), MIMEType: f.GetMimeType(), Size: f.GetSize()})
	}
	return t, object("input.client_context", t.ClientContext)
}

// object checks JSON that travels as text: one strict object, or nothing.
func object(field string, raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	if err := strictjson.Check(raw, strictjson.Options{}); err != nil || !opens(raw, '{') {
		return fault.Wrap(err, fault.InvalidRequest, "rpc.object", fault.Detail(field+": one JSON object"))
	}
	return nil
}
