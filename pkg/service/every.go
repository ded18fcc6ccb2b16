package service

import (
	"context"
	"log/slog"
	"time"
)

// Every does work at once and then each interval until ctx ends, and returns after
// the work that was going on then: what a service looks after by itself. Work that
// fails is tried again after the interval, and logged under its name; what takes
// longer than the interval is followed by the next one at once, and never overlaps.
func Every(ctx context.Context, logger *slog.Logger, interval time.Duration, name string, work func(context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := work(ctx); err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "periodic work failed; it is tried again", "work", name, "error", err.Error())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
