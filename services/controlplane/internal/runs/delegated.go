package runs

import (
	"context"
	"slices"
	"strings"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/agents"
)

// Delegating is who delegates: the subject of a run, and the call in it that lets
// another agent work.
type Delegating struct {
	Caller Caller
	// Agent of the run that delegates.
	Agent agents.Agent
	// By is the call, with all agents on whose behalf the other one works.
	By binding.Delegation
}

// Delegating reads from the committed record on whose behalf a call may let another
// agent work. The call has to stand admitted in the run of the grant: nothing is
// delegated that was not. Errors: stale_lease where it does not,
// dependency_unavailable.
func (s *Service) Delegating(ctx context.Context, g fence.Grant) (Delegating, error) {
	const op = "runs.Delegating"
	env := g.Envelope()
	rec, err := s.cfg.Writer.Backend().Load(ctx, env.BindingID)
	if err != nil {
		return Delegating{}, fault.Wrap(err, fault.DependencyUnavailable, op)
	}
	run := rec.Run
	if run == nil || run.ID != env.RunID || rec.Epoch != env.Epoch || rec.Generation != env.Generation || !run.End.Open() || !admitted(*run, env.IdempotencyKey) {
		return Delegating{}, fault.New(fault.StaleLease, op)
	}
	agent, err := s.agentOf(ctx, rec)
	if err != nil {
		return Delegating{}, err
	}
	var before []string
	if run.DelegatedBy != nil {
		before = run.DelegatedBy.Agents
	}
	return Delegating{
		Caller: Caller{Subject: rec.Identity.Subject, Organization: rec.Identity.Organization},
		Agent:  agent,
		By: binding.Delegation{
			BindingID: rec.ID, Epoch: rec.Epoch, RunID: run.ID, Key: env.IdempotencyKey,
			Agents: append(slices.Clone(before), agent.ID),
		},
	}, nil
}

// admitted reports whether an effect of a run may be under way, under its key or
// under that of a further attempt.
func admitted(run binding.Run, key string) bool {
	return slices.ContainsFunc(run.Admitted, func(k string) bool {
		base, _, _ := strings.Cut(k, "#")
		return base == key
	})
}

// dismiss gives the sandbox of a conversation back that has no next turn.
func (s *Service) dismiss(ctx context.Context, bindingID string) {
	rec, err := s.cfg.Writer.Backend().Load(ctx, bindingID)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "a sandbox is not given back yet; it will be once it was idle for too long", "error", err.Error())
		return
	}
	if rec.Run == nil && rec.Lease != nil {
		s.replaceIdle(ctx, rec)
	}
}
