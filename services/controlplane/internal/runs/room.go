package runs

import (
	"context"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// roomTimeout bounds the question whether there is room. Who does not know is not
// waited for: the claim will tell.
const roomTimeout = time.Second

// room refuses a run that needs another sandbox where it is known at once that there
// is none to be had, before anything of it is committed: whoever asks is told so
// itself, and when to ask again. A run that is there already is answered as ever. One
// that finds no room only when it claims ends with the same code. Error:
// sandbox_capacity.
func (s *Service) room(ctx context.Context, rec binding.Record, agent agents.Agent, runID string) error {
	if rec.Lease == nil || rec.Lease.InstanceUID != "" || rec.Run != nil {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	err := s.cfg.Provider.Room(asking, sandbox.Claim{Name: rec.Lease.ClaimName, Profile: rec.Lease.Profile, Harness: agent.Harness})
	if !fault.Is(err, fault.SandboxCapacity) || holds(rec, runID) {
		return nil
	}
	if _, known := s.cfg.Writer.Backend().LoadRun(ctx, runID); known == nil {
		return nil
	}
	return fault.From(err, "runs.room")
}
