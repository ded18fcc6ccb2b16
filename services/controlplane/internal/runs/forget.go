package runs

import (
	"context"

	"cofferdam.dev/pkg/service"
)

// forget removes the events of runs that ended long ago until ctx ends. Every replica
// does, and each finds what no other has removed.
func (s *Service) forget(ctx context.Context) {
	if s.cfg.KeepEvents <= 0 {
		return
	}
	service.Every(ctx, s.cfg.Logger, s.cfg.ForgetEvery, "forget events", func(ctx context.Context) error {
		n, err := s.cfg.Writer.ForgetLogs(ctx, s.cfg.Now().Add(-s.cfg.KeepEvents))
		if n > 0 {
			s.cfg.Logger.InfoContext(ctx, "events are kept no longer", "runs", n)
		}
		return err
	})
}
