//go:build linux

package runner

import (
	"context"
	"errors"
	"time"

	"cofferdam.dev/services/worker/internal/runner/proctree"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

const (
	// watchEvery is how often a frozen world is looked at. A look reads two files for
	// each process and one for each thread.
	watchEvery = 100 * time.Millisecond
	// settling is how long after it shows as stopped a thread may take to leave its
	// processor, which counts as a switch: a few microseconds, unless something else is
	// put in its place right then.
	settling = 500 * time.Millisecond
)

// vigil is the watch over a frozen world: a process that is stopped goes on when it
// gets SIGCONT, and it can have seen to that before, by a timer, by a descriptor that
// signals its owner, by the death of its parent. It is used under life.
type vigil struct {
	asleep []sleeper
	begun  time.Time
	// settled: the switches of all were counted when they could not grow any more. One
	// that wakes, acts and stops itself between two looks has more from then on.
	settled bool
	end     context.CancelFunc
}

type sleeper struct {
	proctree.Process
	switches uint64
}

// Verdicts of a look.
const (
	verdictStill = ""
	verdictRan   = "ran"
	// verdictEnded: it was killed, or ran to its end.
	verdictEnded = "ended"
)

// newVigil begins with the processes that were found stopped, zombies among them.
func newVigil(found []proctree.Process, end context.CancelFunc) (*vigil, error) {
	v := &vigil{begun: time.Now(), end: end}
	for _, p := range found {
		g, err := p.Look()
		if err != nil {
			return nil, err
		}
		if !g.Gone {
			v.asleep = append(v.asleep, sleeper{p, g.Switches})
		}
	}
	return v, nil
}

// look says what has become of the processes. There can be no others: somebody
// would have had to run.
func (v *vigil) look() (verdict string, err error) {
	final := v.settled
	v.settled = time.Since(v.begun) >= settling
	for i := range v.asleep {
		s := &v.asleep[i]
		g, err := s.Look()
		switch {
		case err != nil:
			return "", err
		case g.Gone:
			return verdictEnded, nil
		case g.Awake, final && g.Switches != s.switches:
			return verdictRan, nil
		}
		s.switches = g.Switches
	}
	return verdictStill, nil
}

// watch begins the vigil over what was found stopped, under life. It ends with
// unfreeze.
func (w *world) watch(ctx context.Context, found []proctree.Process) error {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the call
	v, err := newVigil(found, end)
	if err != nil {
		end()
		return err
	}
	w.vigil = v
	w.vigils.Go(func() { w.keep(ctx) })
	return nil
}

// keep attends to the vigil until ctx ends.
func (w *world) keep(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if w.enter(ctx) != nil {
			return
		}
		if ctx.Err() == nil { // it ends under life
			_ = w.attend(ctx) // the log has it
		}
		w.leave()
	}
}

// attend looks at a frozen world, under life. One in which something has moved, or
// that cannot be looked at, is ended: what was to stand still is hostile, and nothing
// that relied on it can go on.
func (w *world) attend(ctx context.Context) error {
	if w.vigil == nil {
		return nil
	}
	verdict, err := w.vigil.look()
	if err == nil && verdict == verdictStill {
		return nil
	}
	if err != nil {
		w.log.ErrorContext(ctx, "frozen world cannot be looked at, and is ended", "error", err)
	} else {
		w.log.WarnContext(ctx, "frozen world has moved, and is ended", "process", verdict)
	}
	if p := w.program; p != nil && verdict == verdictRan {
		p.ran.Store(true)
	}
	w.unfreeze()
	w.moved++
	return errors.Join(moved(err), w.killer.everything())
}

func moved(cause error) error {
	return runnerproto.Fail(cause, runnerproto.BrokenOrder, "a process of the frozen world ran, and all were killed")
}

// unfreeze ends the vigil, under life, and before anything is let run or killed.
func (w *world) unfreeze() {
	if w.vigil != nil {
		w.vigil.end()
		w.vigil = nil
	}
}
