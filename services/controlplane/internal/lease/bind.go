package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// Limits that every worker is given.
const (
	stateBytes    = 64 << 20
	shutdownGrace = 5 * time.Second
)

// bind commits who the instance is, mints for it, and binds it, each where it is
// not done yet. The instance is committed before anything is minted or sent: the
// capability service signs only for the instance of the lease.
func (m *Manager) bind(ctx context.Context, rec binding.Record, req Request, in sandbox.Instance, client worker.Client, ready worker.Ready, listing <-chan listed) (Held, error) {
	const op = "lease.bind"
	ctx, end := m.step(ctx, "sandbox.bind", rec.Lease.ClaimName)
	defer end()
	if rec.Lease.State == binding.LeaseClaiming {
		var err error
		rec, err = m.cfg.Writer.UpdateLease(ctx, rec.ID, rec.Epoch, rec.Generation, func(l *binding.Lease) {
			l.ClaimUID, l.SandboxUID, l.InstanceUID, l.Endpoint = in.ClaimUID, in.SandboxUID, in.UID, in.Address
			l.ImageDigest, l.BootNonce, l.State = in.ImageDigest, ready.BootNonce, binding.LeaseReady
		})
		if err != nil {
			return Held{}, fault.From(err, op)
		}
	}
	grant, err := m.cfg.Guard.Admit(ctx, req.Envelope)
	if err != nil {
		return Held{}, err
	}
	of := <-listing
	tools, known := of.tools, of.known
	if rec.Lease.State == binding.LeaseBound && known && rec.Lease.ToolsDigest != toolsDigest(tools) {
		return Held{}, fault.New(fault.BindingConflict, op) // it was bound with other tools, for life
	}
	var handles []string
	if req.Handles != nil {
		if handles, err = req.Handles(ctx, grant.Envelope()); err != nil {
			return Held{}, err
		}
	}
	var has manifests
	if rec.Lease.State != binding.LeaseBound { // a bound worker has read them
		if has, err = m.manifests(ctx, grant.Envelope(), req.Agent); err != nil {
			return Held{}, err
		}
		if has.handle != "" {
			handles = append(handles, has.handle)
		}
	}
	tokens, err := m.tokens(ctx, grant.Envelope(), in.UID, m.cfg.Owner, scopes(req.Agent, tools, handles))
	if err != nil {
		return Held{}, err
	}
	held := Held{Client: client, Record: rec, Grant: grant, Token: tokens[0], CallTokens: tokens[1:]}
	if rec.Lease.State == binding.LeaseBound {
		return held, nil
	}
	bindCtx, cancel := context.WithTimeout(ctx, has.bindPatience())
	defer cancel()
	if err := client.Bind(bindCtx, held.Token.Token, m.construction(rec, req, grant, ready, tools, has, held.CallTokens)); err != nil {
		return Held{}, notReady(ctx, err, op)
	}
	failpoint.Reach(failpoint.SandboxBound)
	if held.Record, err = m.cfg.Writer.UpdateLease(ctx, rec.ID, rec.Epoch, rec.Generation, func(l *binding.Lease) {
		l.State, l.BoundBy, l.ToolsDigest = binding.LeaseBound, held.Token.ID, toolsDigest(tools)
	}); err != nil {
		return Held{}, fault.From(err, op)
	}
	held.CallTokens = nil
	return held, nil
}

// listed is what tools gave.
type listed struct {
	tools []worker.Tool
	known bool
}

// listTools lists the tools of an agent while its sandbox is being claimed. stop ends
// that, and waits for it.
func (m *Manager) listTools(ctx context.Context, a agents.Agent) (listing <-chan listed, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	answer, done := make(chan listed, 1), make(chan struct{})
	go func() {
		defer close(done)
		tools, known := m.tools(ctx, a)
		answer <- listed{tools, known}
	}()
	return answer, func() {
		cancel()
		<-done
	}
}

// tools describes the agent's tools. A run without them is worth more than none:
// while the ToolBroker is away the harness sees fewer, and known is false.
func (m *Manager) tools(ctx context.Context, a agents.Agent) (tools []worker.Tool, known bool) {
	if len(a.Tools) == 0 {
		return nil, true
	}
	ctx, cancel := context.WithTimeout(ctx, toolsTimeout)
	defer cancel()
	tools, unavailable, err := m.cfg.Tools.ListTools(ctx, a.Tools)
	if err != nil {
		m.cfg.Logger.WarnContext(ctx, "tools cannot be listed; the run starts without them", "agent", a.ID, "error", err.Error())
		return nil, false
	}
	tools = delegates(tools, a)
	for i := range tools {
		tools[i].ApprovalRequired = tools[i].ApprovalRequired || a.RequiresApproval(tools[i].ID)
	}
	if len(unavailable) > 0 {
		m.cfg.Logger.WarnContext(ctx, "some tools are not available", "agent", a.ID, "tools", unavailable)
	}
	return tools, true
}

// toolsDigest tells one set of tools from another; that of none is empty.
func toolsDigest(tools []worker.Tool) string {
	if len(tools) == 0 {
		return ""
	}
	h := sha256.New()
	for _, t := range tools {
		for _, part := range []string{t.ID, t.OfferedName, t.Description, string(t.InputSchema), strconv.FormatBool(t.ApprovalRequired), strconv.FormatBool(t.ReadOnly), strconv.FormatBool(t.Delegates)} {
			_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // a hash never fails to write
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// scopes are what the worker's own capability and those for its calls allow; its
// own is the first.
func scopes(agent agents.Agent, tools []worker.Tool, handles []string) []Scope {
	out := []Scope{
		{Audience: capability.HarnessWorker},
		{Audience: capability.ThreadState},
		{Audience: capability.ModelProxy, ModelAlias: agent.ModelAlias},
	}
	if len(agent.MemoryScopes) > 0 {
		out = append(out, Scope{Audience: capability.Memory, Memory: agent.MemoryScopes})
	}
	if len(tools) > 0 {
		// The worker is told of approvals and of middleware, and is not what they
		// rest on: the capability says the same to the ToolBroker.
		s := Scope{Audience: capability.ToolBroker}
		denied := agent.DeniedTools()
		for _, t := range tools {
			if slices.Contains(denied, t.ID) {
				continue
			}
			s.Tools = append(s.Tools, t.ID)
			if t.ApprovalRequired {
				s.ApproveTools = append(s.ApproveTools, t.ID)
			}
		}
		out = append(out, s)
	}
	if len(handles) > 0 {
		out = append(out, Scope{Audience: capability.FileBroker, Handles: handles})
	}
	return out
}

func (m *Manager) construction(rec binding.Record, req Request, g fence.Grant, ready worker.Ready, tools []worker.Tool, has manifests, calls []worker.Token) worker.Binding {
	options, err := json.Marshal(req.Agent.HarnessOptions)
	if err != nil || req.Agent.HarnessOptions == nil { // it came from JSON, so it goes back to it
		options = []byte("{}")
	}
	return worker.Binding{
		Envelope:       g.Envelope(),
		ConversationID: rec.Identity.ConversationID,
		Expected:       ready,
		Agent: worker.Agent{
			ID: req.Agent.ID, Version: req.Agent.Version, Name: req.Agent.Name, HarnessOptions: options,
			Model: model(req.Agent), Prompt: req.Agent.Prompt,
		},
		Interrupts: worker.InterruptPolicy{
			FormInput: !req.Agent.Interrupts.NoFormInput, ToolApproval: !req.Agent.Interrupts.NoToolApproval,
		},
		Middleware:   middleware(req.Agent),
		MemoryScopes: req.Agent.MemoryScopes,
		Tools:        tools,
		Skills:       has.skills,
		Files:        has.files,
		Endpoints:    m.cfg.Endpoints,
		Limits: worker.Limits{
			MaxModelCalls: req.Agent.Limits.MaxModelCalls, MaxToolCalls: req.Agent.Limits.MaxToolCalls,
			MaxStateBytes: stateBytes, ShutdownGrace: shutdownGrace,
		},
		Tokens: calls,
	}
}

func model(a agents.Agent) worker.Model {
	return worker.Model{
		Alias: a.ModelAlias, Wire: a.Model.Wire, MaxOutputTokens: a.Limits.MaxOutputTokens,
		ContextTokens: a.Model.ContextTokens, Images: a.Model.Images, Documents: a.Model.Documents,
	}
}

// middleware has options that came from JSON and so go back to it.
func middleware(a agents.Agent) []worker.Middleware {
	out := make([]worker.Middleware, 0, len(a.Middleware))
	for _, m := range a.Middleware {
		options, err := json.Marshal(m.Options)
		if err != nil || m.Options == nil {
			options = []byte("{}")
		}
		out = append(out, worker.Middleware{Name: m.Name, Options: options})
	}
	return out
}
