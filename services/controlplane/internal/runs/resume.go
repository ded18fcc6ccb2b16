package runs

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// ResumeRequest is a caller's decision on an interrupt.
type ResumeRequest struct {
	// RunID is the run that was interrupted.
	RunID       string
	InterruptID string
	// Revision of the interrupt, as the caller saw it.
	Revision uint64
	Decision event.ResumeDecision
}

// resumption is a decision that is being carried out.
type resumption struct {
	conversationID string
	interruptID    string
	revision       uint64
	body           []byte
	decision       event.ResumeDecision
	// delegating are the carried calls that nobody was asked about.
	delegating []string
}

func (r *resumption) request(env fence.Envelope, uploads []worker.Upload, tokens []worker.Token) worker.Resume {
	return worker.Resume{
		Envelope: env, ConversationID: r.conversationID, Interrupt: r.body, InterruptID: r.interruptID,
		Revision: r.revision, Decision: r.decision, Carried: r.delegating, Uploads: uploads, Tokens: tokens,
	}
}

// Resume commits the run that carries a decision out, and drives it. The same
// decision again is answered with the same run. The caller may use the agent:
// that is checked before. Errors: not_found (run), interrupt_not_found,
// interrupt_conflict for another revision or after another decision,
// invalid_request for a decision that does not fit what was asked, already_running,
// sandbox_capacity where it is known at once that there is no room (the interrupt is
// still pending then), dependency_unavailable.
func (s *Service) Resume(ctx context.Context, caller Caller, req ResumeRequest) (Started, error) {
	const op = "runs.Resume"
	if s.stop.Err() != nil {
		return Started{}, fault.New(fault.DependencyUnavailable, op, fault.RetryAfter(time.Second))
	}
	rec, _, err := s.find(ctx, caller, req.RunID)
	if err != nil {
		return Started{}, err
	}
	agent, err := s.agentOf(ctx, rec)
	if err != nil {
		return Started{}, err
	}
	asked, err := s.asked(ctx, rec, req.RunID)
	if err != nil {
		return Started{}, err
	}
	if asked.InterruptID != req.InterruptID {
		return Started{}, fault.New(fault.InterruptNotFound, op)
	}
	decision, err := req.Decision.Normal(asked.InterruptRequested)
	if err != nil {
		return Started{}, badDecision(err)
	}
	if err := s.checkEdits(ctx, asked.InterruptRequested, decision); err != nil {
		return Started{}, err
	}
	r := &resumption{
		conversationID: rec.Identity.ConversationID, interruptID: req.InterruptID, revision: req.Revision, body: asked.body, decision: decision,
	}
	p := binding.ResumeParams{
		StartParams: binding.StartParams{
			BindingID: rec.ID,
			Epoch:     rec.Epoch,
			RunID:     binding.ResumeRunID(rec.ID, rec.Epoch, req.InterruptID, req.Revision),
			RequestID: "req_" + rand.Text(),
			Deadline:  s.cfg.Now().Add(agent.Limits.RunTimeout()).UTC(),
			Owner:     s.cfg.Owner,
		},
		InterruptID: req.InterruptID, Revision: req.Revision, AskedBy: req.RunID, InterruptHash: event.InterruptHash(asked.body),
		DecisionHash: decision.Hash(req.RunID),
	}
	for _, c := range asked.pending {
		carries, err := grantOf(asked.InterruptRequested, decision, c.ToolCallID)
		if err != nil {
			return Started{}, err
		}
		p.Carried = append(p.Carried, carries)
		if carries.Decision == "" {
			r.delegating = append(r.delegating, c.ToolCallID)
		}
	}
	if err := s.room(ctx, rec, agent, p.RunID); err != nil {
		return Started{}, err
	}
	defer s.hub.expect(p.RunID)()
	started, err := s.commitStart(ctx, rec.ID, func() (binding.Started, error) { return s.cfg.Writer.Resume(ctx, p) })
	if err != nil {
		return Started{}, err
	}
	out := Started{
		RunID: p.RunID, BindingID: rec.ID, Epoch: p.Epoch, New: started.Outcome == binding.StartedNow,
		AskedBy: p.AskedBy, Carried: carriedCalls(p.Carried),
	}
	if out.New {
		start := StartRequest{AgentID: agent.ID, ConversationID: rec.Identity.ConversationID}
		s.launch(trace.SpanContextFromContext(ctx), started.Record, agent, start, r) //nolint:contextcheck // a run outlives the request that starts it
	}
	return out, nil
}

// grantOf is what a decision says of one call that waits: the grant for that call
// alone, with its arguments as they were asked about or edited. The ToolBroker
// admits a call that needs one only with it.
func grantOf(i event.InterruptRequested, d event.ResumeDecision, toolCallID string) (binding.Carried, error) {
	c := binding.Carried{ToolCallID: toolCallID, Decision: string(d.On(i, toolCallID))}
	for _, a := range i.ToolApprovals {
		if a.ToolCallID != toolCallID {
			continue
		}
		args := a.ToolArgs
		for _, t := range d.Tools {
			if t.ToolCallID == toolCallID && t.Decision == event.DecisionEdit {
				args = t.Arguments
			}
		}
		text, err := strictjson.Canonical([]byte(args), strictjson.Options{MaxBytes: event.MaxArgumentsBytes, MaxDepth: event.MaxArgumentsDepth})
		if err != nil {
			return c, fault.Wrap(err, fault.InvalidRequest, "runs.grant", fault.Detail("tool_decisions.arguments: not acceptable as JSON"))
		}
		c.ArgsDigest = binding.ToolCallDigest(a.ToolName, text)
	}
	return c, nil
}

// asked is an interrupt as it stands in the log of its run.
type asked struct {
	event.InterruptRequested
	// body is its payload in the published form.
	body []byte
	// pending are the calls that wait for the answer.
	pending []event.Carried
}

// asked reads the interrupt of a run from its log. Errors: interrupt_not_found.
func (s *Service) asked(ctx context.Context, rec binding.Record, runID string) (asked, error) {
	const op = "runs.asked"
	carried, err := s.carried(ctx, rec, runID)
	if err != nil {
		return asked{}, err
	}
	m := s.machine(rec, runID, carried)
	if err := m.Replay(s.logOf(ctx, rec.ID, runID)); err != nil {
		return asked{}, fault.From(err, op)
	}
	i, ok := m.Interrupt()
	if t, ended := m.Terminal(); !ok || !ended || t.Type() != event.TypeRunInterrupted {
		return asked{}, fault.New(fault.InterruptNotFound, op)
	}
	body, err := event.InterruptBody(i)
	if err != nil {
		return asked{}, fault.Wrap(err, fault.Internal, op)
	}
	return asked{i, body, m.Pending()}, nil
}

// carried are the calls that a run did not have to start.
func (s *Service) carried(ctx context.Context, rec binding.Record, runID string) ([]binding.Carried, error) {
	for _, e := range rec.Ending {
		if e.Run != nil && e.Run.ID == runID {
			return e.Run.Carried, nil
		}
	}
	if rec.Run != nil && rec.Run.ID == runID {
		return rec.Run.Carried, nil
	}
	doc, err := s.cfg.Writer.Backend().LoadRun(ctx, runID)
	if errors.Is(err, binding.ErrNotFound) {
		return nil, fault.New(fault.InterruptNotFound, "runs.carried")
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.DependencyUnavailable, "runs.carried")
	}
	return doc.Carried, nil
}

// machine is that of one run of a binding.
func (s *Service) machine(rec binding.Record, runID string, carried []binding.Carried) *event.Machine {
	return event.NewMachine(runID, rec.Identity.ConversationID, s.cfg.Bounds, carriedCalls(carried)...)
}

func carriedCalls(carried []binding.Carried) []event.Carried {
	calls := make([]event.Carried, len(carried))
	for i, c := range carried {
		calls[i] = event.Carried{ToolCallID: c.ToolCallID, Decision: event.Decision(c.Decision)}
	}
	return calls
}

func badDecision(err error) error {
	if v, ok := errors.AsType[*event.ViolationError](err); ok {
		return fault.Wrap(err, fault.InvalidRequest, "runs.Resume", fault.Detail(v.Field+": "+v.Reason))
	}
	return fault.From(err, "runs.Resume")
}
