package runs

import (
	"context"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
)

// expire takes out questions that nobody has answered in their time: a later
// answer is interrupt_not_found, and the next message starts a run, in which the
// harness gives up what waited. An answer that comes at the same moment wins or
// loses by the write. A question of an agent that is gone stays: nobody says how
// long it may wait, and nobody can answer it either.
func (s *Service) expire(ctx context.Context) {
	s.each(ctx, false, func(rec binding.Record) {
		i := rec.Interrupt
		if i == nil || i.At.IsZero() {
			return
		}
		agent, err := s.agentOf(ctx, rec)
		if err != nil || s.cfg.Now().Sub(i.At) <= agent.Interrupts.ExpireAfter() {
			return
		}
		err = s.cfg.Writer.ExpireInterrupt(ctx, rec.ID, i.ID, i.Revision)
		switch {
		case err == nil:
			s.cfg.Logger.InfoContext(ctx, "a question was not answered in its time and has expired", "interrupt_id", i.ID)
		case !fault.Is(err, fault.InterruptConflict) && ctx.Err() == nil:
			s.cfg.Logger.WarnContext(ctx, "a question could not be expired yet", "error", err.Error())
		}
	})
}
