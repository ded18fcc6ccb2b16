package escape

import (
	"context"
	"fmt"
	"testing"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
)

const (
	// neighbours is how many attacks have a neighbour at once.
	neighbours = 4
	// neighbourTimeout bounds a turn of a neighbour.
	neighbourTimeout = 2 * time.Minute
	// honestTurn calls a tool and has a state to commit.
	honestTurn = ">>call fs.list_directory {\"path\":\".\"}\n>>say I am fine"
)

// besides runs an attack while a neighbour works, each of whose turns must finish.
// At least one of them is whole while the attack is under way, or begins then.
func (w *world) besides(t *testing.T, attack func()) {
	t.Helper()
	neighbour := <-w.neighbours
	ctx, cancel := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() {
		defer func() { w.neighbours <- neighbour }()
		for turns := 0; ; turns++ {
			if err := neighbour.work(context.WithoutCancel(ctx)); err != nil {
				worked <- fmt.Errorf("turn %d: %w", turns, err)
				return
			}
			if ctx.Err() != nil {
				worked <- nil
				return
			}
		}
	}()
	defer func() { // also where the attack ends the test
		cancel()
		if err := <-worked; err != nil {
			t.Errorf("the neighbour: %v", err)
		}
	}()
	attack()
}

// work does one turn.
func (c *talk) work(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, neighbourTimeout)
	defer cancel()
	run, err := c.w.user.Start(ctx, apiclient.Start{AgentID: c.agent, ConversationID: c.conversation, Message: honestTurn})
	if err != nil {
		return err
	}
	events, err := c.w.user.Follow(ctx, run.RunID)
	if err != nil {
		return err
	}
	if r := (turn{run, events}); len(events) == 0 || r.last().Type != "run.finished" {
		return fmt.Errorf("did not finish: %s", r)
	}
	return nil
}
