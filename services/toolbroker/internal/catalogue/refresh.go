package catalogue

import (
	"context"
	"time"

	"cofferdam.dev/pkg/fault"
)

// Lists of tools are asked for again when the server's time to live is over, when
// it says that they have changed, and when a call has gone wrong.
const (
	defaultTTL = 5 * time.Minute
	maxTTL     = time.Hour
	// A list is never asked for again before shortest times the back-off, and for
	// its time to live alone not before leastTTL times: a server that says "at
	// once" does not keep the broker busy.
	shortest = 2
	leastTTL = 20
	// giveUp is after how many lists in a row that did not come a connection over
	// HTTP is made anew. A process stays: what it is working on would be lost.
	giveUp = 3
)

// refresh keeps the tools up to date until the server ends, or ctx does.
func (s *server) refresh(ctx context.Context, live peer, ttl time.Duration) {
	listed := time.Now()
	timer := time.NewTimer(s.lifetime(ttl))
	defer timer.Stop()
	for failed := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-live.Done():
			s.logger.WarnContext(ctx, "tool server ended", "code", string(fault.ToolUnavailable))
			return
		case <-live.Changed():
			timer.Reset(time.Until(listed.Add(shortest * s.backOff)))
			continue
		case <-s.doubt:
			timer.Reset(time.Until(listed.Add(shortest * s.backOff)))
			continue
		case <-timer.C:
		}
		found, err := list(ctx, live)
		listed = time.Now()
		if err == nil {
			failed = 0
			s.publish(ctx, live, found)
			timer.Reset(s.lifetime(found.TTL))
			continue
		}
		if ctx.Err() != nil {
			return
		}
		failed++
		s.logger.WarnContext(ctx, "tools could not be listed again", "code", string(fault.ToolUnavailable), "reason", s.loggable(err))
		if failed >= giveUp && s.cfg.Transport == TransportHTTP {
			return
		}
		timer.Reset(min(s.backOff<<min(failed, 16), maxBackOff))
	}
}

// lifetime is how long a list is believed.
func (s *server) lifetime(ttl time.Duration) time.Duration {
	if ttl <= 0 {
		return defaultTTL
	}
	return min(max(ttl, leastTTL*s.backOff), maxTTL)
}
