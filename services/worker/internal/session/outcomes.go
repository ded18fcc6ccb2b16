package session

import (
	"context"
	"crypto/sha256"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

const (
	// keptTerminals is of how many ended runs the terminal is kept.
	keptTerminals = 64
	// maxRuns bounds the life of a worker: it knows every run that it had, so that
	// a slow second start can never start a finished run again.
	maxRuns = 16 << 10
)

// outcome is what is kept of a run that has ended.
type outcome struct {
	digest [sha256.Size]byte
	// terminal is nil where the run had none, or ended too long ago.
	terminal *event.Event
}

// again gives the terminal once more, and nothing else.
func (o outcome) again(ctx context.Context, t task) (*Run, error) {
	switch {
	case o.digest != t.digest:
		return nil, fault.New(t.conflict, "session.Start")
	case o.terminal == nil:
		return nil, fault.New(fault.StaleLease, "session.Start")
	}
	return replay(ctx, t.env, *o.terminal), nil
}

// outcomes are the runs that have ended, by id.
type outcomes struct {
	byRun map[string]outcome
	// recent have their terminals, the oldest first.
	recent []string
}

func (o *outcomes) of(runID string) (outcome, bool) {
	out, ok := o.byRun[runID]
	return out, ok
}

func (o *outcomes) full() bool { return len(o.byRun) >= maxRuns }

func (o *outcomes) remember(runID string, out outcome) {
	o.byRun[runID] = out
	o.recent = append(o.recent, runID)
	if len(o.recent) > keptTerminals {
		oldest := o.byRun[o.recent[0]]
		oldest.terminal = nil
		o.byRun[o.recent[0]] = oldest
		o.recent = o.recent[1:]
	}
}
