package scale

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// warmPool is how many sandboxes are kept ready while warm claims are timed.
const warmPool = 8

// claims times claims, one at a time, on stacks of their own.
func (c Config) claims(ctx context.Context, r *Report) error {
	for _, kind := range []struct {
		name     string
		warm     int
		p50, p95 *float64
	}{
		{"warm", warmPool, &r.WarmP50, &r.WarmP95},
		{"cold", 0, &r.ColdP50, &r.ColdP95},
	} {
		took, err := c.timed(ctx, kind.name, kind.warm)
		if err != nil {
			return fmt.Errorf("%s claims: %w", kind.name, err)
		}
		*kind.p50, *kind.p95 = percentile(took, 50), percentile(took, 95)
		c.say("%d %s claims: p50 %.0f ms, p95 %.0f ms", len(took), kind.name, *kind.p50, *kind.p95)
	}
	return nil
}

func (c Config) timed(ctx context.Context, name string, warm int) (took []time.Duration, err error) {
	s, err := stack.Up(ctx, c.Command, filepath.Join(c.Folder, name), "--warm", strconv.Itoa(warm),
		"--max-sandboxes", strconv.Itoa(c.Claims+warm+1), "--log-level", "warn")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	user, err := s.Client(ctx, stack.User)
	if err != nil {
		return nil, err
	}
	for i := range c.Claims {
		// A pool that is being filled again is not what is measured.
		err := stack.Until(ctx, func() (bool, error) {
			workers, err := workersOf(s)
			return len(workers) >= i+warm, err
		})
		if err != nil {
			return nil, err
		}
		d, err := firstEvent(ctx, user, name+"-"+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	return took, nil
}

// firstEvent is how long a new conversation takes to its first committed event.
func firstEvent(ctx context.Context, user *apiclient.Client, conversation string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	begun := time.Now()
	started, err := user.Start(ctx, apiclient.Start{AgentID: stack.Agent, ConversationID: conversation, Message: ">>say here"})
	if err != nil {
		return 0, err
	}
	stream, err := user.Stream(ctx, started.RunID, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = stream.Close() }() // only read
	if _, err := stream.Next(); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	for { // the next claim begins when this turn is over
		if _, err := stream.Next(); err != nil {
			return took, ignoreEOF(err)
		}
	}
}
