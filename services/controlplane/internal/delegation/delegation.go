// Package delegation lets one agent work on behalf of another: it decides who may,
// and drives the run to its end.
package delegation

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/runs"
)

const (
	// MaxDepth is how many agents may stand above one that works: with it a run and
	// all that is delegated below it fit the namespaces of an event.
	MaxDepth = 4
	// cancelTimeout bounds the cancel of a run that nobody waits for any more.
	cancelTimeout = 20 * time.Second
	// key of the one run of a delegated conversation.
	key = "delegated"
)

// Runs drives runs; *runs.Service does.
type Runs interface {
	Delegating(ctx context.Context, g fence.Grant) (runs.Delegating, error)
	Start(ctx context.Context, caller runs.Caller, req runs.StartRequest) (runs.Started, error)
	Follow(ctx context.Context, caller runs.Caller, runID string, o runs.FollowOptions, yield func(sequence uint64, raw json.RawMessage) error) error
	Cancel(ctx context.Context, caller runs.Caller, runID string, reason event.CancelReason) (runs.Cancelled, error)
}

// Agents gives agents by id; *agents.Registry does.
type Agents interface {
	// Newest version. Errors: not_found, dependency_unavailable.
	Newest(ctx context.Context, id string) (agents.Agent, error)
}

// Authorizer asks whether a subject has a relation to an object. Errors:
// access_denied, dependency_unavailable.
type Authorizer interface {
	Check(ctx context.Context, subject, relation, object string) error
}

// Service delegates.
type Service struct {
	runs   Runs
	agents Agents
	authz  Authorizer
	logger *slog.Logger
}

// New makes a Service.
func New(r Runs, g Agents, a Authorizer, logger *slog.Logger) *Service {
	return &Service{r, g, a, logger}
}

// Request of a call.
type Request struct {
	// Grant of the run that delegates; its idempotency key is that of the call.
	Grant fence.Grant
	// AgentID is whose turn it is, and Message what it is told.
	AgentID string
	Message string
}

// Watcher is told of a delegated run.
type Watcher interface {
	// Begun comes first: the run is committed.
	Begun(runID, agentName string) error
	// Event gives a committed event as JSON, in order; the last is the terminal.
	Event(raw json.RawMessage) error
}

// Delegate runs the agent in a conversation of its own, for the subject of the run
// that delegates, and tells of it up to its terminal. The run ends with ctx, with
// the deadline of the grant, and where the watcher has an error: it is cancelled
// then. The same call again is the same run.
//
// Faults before anything has begun: not_found (no such agent), capability_scope
// (the calling agent may not delegate to it), invalid_request (the agent is at work
// above already, or there are MaxDepth above it), access_denied, stale_lease, and
// those of a start.
func (s *Service) Delegate(ctx context.Context, req Request, to Watcher) error {
	const op = "delegation.Delegate"
	from, err := s.runs.Delegating(ctx, req.Grant)
	if err != nil {
		return err
	}
	agent, err := s.allowed(ctx, from, req.AgentID)
	if err != nil {
		return err
	}
	by := from.By
	started, err := s.runs.Start(ctx, from.Caller, runs.StartRequest{
		AgentID: req.AgentID, ConversationID: conversation(by), Message: req.Message, IdempotencyKey: key,
		DelegatedBy: &by, Until: req.Grant.Envelope().Deadline,
	})
	if err != nil {
		return err
	}
	if err = to.Begun(started.RunID, agent.Name); err == nil {
		err = s.runs.Follow(ctx, from.Caller, started.RunID, runs.FollowOptions{}, func(_ uint64, raw json.RawMessage) error { return to.Event(raw) })
	}
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if _, cerr := s.runs.Cancel(ctx, from.Caller, started.RunID, event.CancelledByDisconnect); cerr != nil {
		s.logger.WarnContext(ctx, "a delegated run could not be cancelled; it ends with its deadline", "run_id", started.RunID, "error", cerr.Error())
	}
	return fault.From(err, op)
}

// allowed decides by the operator's catalogue, by what is at work already, and by
// what OpenFGA says of the subject.
func (s *Service) allowed(ctx context.Context, from runs.Delegating, agentID string) (agents.Agent, error) {
	const op = "delegation.allowed"
	if !slices.Contains(from.Agent.Delegates, agentID) {
		return agents.Agent{}, fault.New(fault.CapabilityScope, op, fault.Detail("agent_id: the calling agent may not delegate to it"))
	}
	switch {
	case slices.Contains(from.By.Agents, agentID):
		return agents.Agent{}, fault.New(fault.InvalidRequest, op, fault.Detail("agent_id: the agent has delegated this work itself"))
	case len(from.By.Agents) > MaxDepth:
		return agents.Agent{}, fault.New(fault.InvalidRequest, op, fault.Detail(fmt.Sprintf("agent_id: work is delegated at most %d times", MaxDepth)))
	}
	if err := s.authz.Check(ctx, from.Caller.Subject, authz.CanInvoke, authz.AgentID(agentID)); err != nil {
		return agents.Agent{}, err
	}
	return s.agents.Newest(ctx, agentID)
}

// conversation is that of one call, which has no other.
func conversation(by binding.Delegation) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s/%d/%s/%s", by.BindingID, by.Epoch, by.RunID, by.Key) // a hash never fails to write, and no id has a slash
	return "delegated." + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
