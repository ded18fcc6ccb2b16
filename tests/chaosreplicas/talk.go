package chaosreplicas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

const (
	// callTimeout bounds one run with all that happens to it.
	callTimeout = 3 * time.Minute
	// maxHaste is how long after its start at most something is done to a run.
	maxHaste = 800 * time.Millisecond
	// readers of a run at most, besides the one that may drop.
	readers = 2
)

// run is a run that was acknowledged, and what was read of it.
type run struct {
	id   string
	what string

	mu sync.Mutex
	// seen are the texts of the events that each stream gave, from the first on.
	seen [][]string
}

func (r *run) read(events []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, events)
}

// any is one of the replicas, by chance.
func (c *chaos) any() *apiclient.Client { return c.replicas[rand.IntN(len(c.replicas))] } //nolint:gosec // chance, not secrets

// message is a turn by chance: short, long, slow, or with a tool.
func message() string {
	switch rand.IntN(5) { //nolint:gosec // chance, not secrets
	case 0:
		return ">>say hello"
	case 1:
		return ">>repeat 200 some words that make a log of some length"
	case 2:
		return ">>say one\n>>sleep 300\n>>say two\n>>sleep 300\n>>say three"
	case 3:
		return `>>call fs.list_directory {"path":"."}`
	default:
		return ">>think about it\n>>say so\n>>sleep 1500\n>>say and so"
	}
}

// talk has one conversation until ctx ends: one run after the other.
func (c *chaos) talk(ctx context.Context, n int) error {
	conversation := "chaos-" + strconv.Itoa(n)
	for i := 0; ctx.Err() == nil; i++ {
		// A run that has begun is brought to its end.
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		err := c.turn(whole, conversation, strconv.Itoa(i))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// turn starts a run, reads it, perhaps does something to it, and waits for its end.
// A request that fails is made again: its key makes it the same run.
func (c *chaos) turn(ctx context.Context, conversation, n string) error {
	r := &run{what: message()}
	drops := rand.IntN(6) == 0 //nolint:gosec // chance, not secrets
	start := apiclient.Start{AgentID: stack.Agent, ConversationID: conversation, Message: r.what, IdempotencyKey: conversation + "-" + n}
	if drops {
		start.OnDisconnect = "cancel"
	}
	err := stack.Until(ctx, func() (bool, error) {
		s, err := c.any().Start(ctx, start)
		r.id = s.RunID
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("start in %s: %w", conversation, err)
	}
	c.add(r)
	var reading sync.WaitGroup
	if drops {
		reading.Go(func() { c.drop(ctx, r) })
	}
	for range rand.IntN(readers + 1) { //nolint:gosec // chance, not secrets
		reading.Go(func() { c.follow(ctx, r) })
	}
	if err := c.disturb(ctx, conversation, r); err != nil {
		return fmt.Errorf("%s, run %s: %w", conversation, r.id, err)
	}
	err = stack.Until(ctx, func() (bool, error) {
		status, err := c.any().Run(ctx, r.id)
		return err == nil && status.State == "ended", err
	})
	reading.Wait()
	if err != nil {
		return fmt.Errorf("%s, run %s: %w", conversation, r.id, err)
	}
	return nil
}

// disturb cancels a run, clears its conversation, or lets it be.
func (c *chaos) disturb(ctx context.Context, conversation string, r *run) error {
	what := rand.IntN(6) //nolint:gosec // chance, not secrets
	if what > 1 {
		return nil
	}
	select {
	case <-time.After(rand.N(maxHaste)): //nolint:gosec // chance, not secrets
	case <-ctx.Done():
	}
	return stack.Until(ctx, func() (bool, error) {
		if what == 0 {
			_, err := c.any().Cancel(ctx, r.id)
			return err == nil, err
		}
		a, err := c.any().Do(ctx, http.MethodPost, "/api/v1/conversations/"+conversation+"/clear", "application/json",
			strings.NewReader(`{"agent_id":"`+stack.Agent+`"}`))
		err = errors.Join(err, a.Err())
		return err == nil, err
	})
}

// drop opens the stream that a run was started for, and lets go of it.
func (c *chaos) drop(ctx context.Context, r *run) {
	ctx, cancel := context.WithTimeout(ctx, rand.N(maxHaste)) //nolint:gosec // chance, not secrets
	defer cancel()
	c.disconnects.Add(1)
	s, err := c.any().Stream(ctx, r.id, nil)
	if err != nil {
		return // the replica is away, or the time was too short
	}
	defer func() { _ = s.Close() }() // it is let go of
	r.read(c.take(s, nil))
}

// follow reads a run to its end, and comes back where a stream ends before that: at
// any replica, after the last event that it has seen.
func (c *chaos) follow(ctx context.Context, r *run) {
	var seen []string
	var last *uint64
	for ctx.Err() == nil {
		s, err := c.any().Stream(ctx, r.id, last)
		if err != nil {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		before := len(seen)
		seen = c.take(s, seen)
		_ = s.Close() // it was read
		if len(seen) > before {
			n := uint64(len(seen) - 1) //nolint:gosec // it is longer than nothing
			last = &n
		}
		if len(seen) > 0 && strings.HasPrefix(seen[len(seen)-1], terminalMark) {
			break
		}
	}
	r.read(seen)
}

// terminalMark begins what is kept of a terminal.
const terminalMark = "terminal "

// take reads a stream to its end, however it ends.
func (c *chaos) take(s *apiclient.Stream, seen []string) []string {
	c.streams.Add(1)
	for {
		e, err := s.NextEvent()
		if err != nil {
			return seen
		}
		seen = append(seen, kept(e))
	}
}

// kept is what is kept of an event.
func kept(e apiclient.Event) string {
	if e.Terminal() {
		return terminalMark + string(e.Raw)
	}
	return string(e.Raw)
}
