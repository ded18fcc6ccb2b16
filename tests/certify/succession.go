package certify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// succession is how one sandbox of a conversation followed another one.
type succession struct {
	Before, After seat
	// OldAlive says that the process of before is still there afterwards.
	OldAlive bool
	// Ending of the run that was under way, and the one that would be the truth; both are
	// empty where there was none.
	Ending, Want string
	// Knows says that the turn afterwards knows what was said before, and Should that it
	// has to.
	Knows, Should bool
	// Epochs is how many the conversation went on by, and Clears how often it was cleared.
	Epochs, Clears uint32
}

// judgeSuccession sees that another sandbox under a higher generation took over, and
// knows what it should.
func judgeSuccession(s succession) error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Before.Binding != s.After.Binding || s.Before.Binding == "" {
		say("it went on as binding %q, and was %q", s.After.Binding, s.Before.Binding)
	}
	if s.After.Generation <= s.Before.Generation {
		say("generation %d came after %d", s.After.Generation, s.Before.Generation)
	}
	if s.After.Instance == s.Before.Instance || s.After.SPIFFEID == s.Before.SPIFFEID || s.After.Claim == s.Before.Claim {
		say("the sandbox of before was met again")
	}
	if s.OldAlive {
		say("the process of before is still there")
	}
	if s.Ending != s.Want {
		say("the run ended as %q, want %q", s.Ending, s.Want)
	}
	if s.Knows != s.Should {
		say("what was said before is known: %v, want %v", s.Knows, s.Should)
	}
	if s.Epochs != s.Clears {
		say("%d epochs for %d clears", s.Epochs, s.Clears)
	}
	return errors.Join(errs...)
}

// lifecycle ends sandboxes in every way that one machine has.
func lifecycle(ctx context.Context, w *world, l *ledger) {
	for _, c := range []struct {
		name string
		play func(context.Context) (succession, error)
	}{
		{"eviction: the run ends as sandbox_evicted, and another sandbox under a higher generation goes on", w.evicted},
		{"clear: the next epoch is in another sandbox and knows nothing", w.cleared},
		{"expiration: a sandbox whose time is over is replaced, and the conversation restored", w.expired},
		{"replacement: what dies between two turns is replaced, and the conversation restored", w.betweenTurns},
		{"orphans: when the host of the sandboxes dies they end, and the conversations go on in others", w.orphaned},
	} {
		s, err := c.play(ctx)
		if err == nil {
			err = judgeSuccession(s)
		}
		l.holds(c.name, err)
	}
	l.holds("orphans: a run whose replica dies is brought to its end by another one", w.lost(ctx))
	s, err := w.hibernated(ctx)
	if err == nil {
		err = judgeSuccession(s)
	}
	l.holds("hibernation: a sandbox that waits too long is given back, its lease says so, and the conversation goes on in another one", err)
}

// opened is a conversation with something to remember.
func (w *world) opened(ctx context.Context, agent string) (c *talk, mark string, s succession, r turn, err error) {
	c, mark = w.talk(agent), "mark-"+strings.ToLower(rand.Text())
	if r, err = c.tell(ctx, say(mark)); err == nil {
		s.Before, _, err = w.seat(ctx, r.BindingID)
	}
	return c, mark, s, r, err
}

// resumed has the next turn say what it knows, and looks at what is left of before.
func (w *world) resumed(ctx context.Context, c *talk, mark string, s *succession, epoch uint32) error {
	r, err := c.patiently(ctx, recall())
	if err != nil {
		return fmt.Errorf("the next turn: %w", err)
	}
	s.Knows, s.Epochs = strings.Contains(r.text(), mark), r.Epoch-epoch
	if s.After, _, err = w.seat(ctx, r.BindingID); err != nil {
		return err
	}
	s.OldAlive = w.ends(ctx, s.Before.PID) != nil
	return nil
}

func (w *world) evicted(ctx context.Context) (succession, error) {
	c, mark, s, first, err := w.opened(ctx, plain)
	if err != nil {
		return s, err
	}
	run, err := c.begin(ctx, say("at work"), busy())
	if err == nil {
		err = w.speaks(ctx, 0, run.RunID)
	}
	if err == nil {
		err = syscall.Kill(s.Before.PID, syscall.SIGKILL)
	}
	if err != nil {
		return s, err
	}
	r, err := w.end(ctx, 0, run)
	if err != nil {
		return s, err
	}
	s.Ending, s.Want, s.Should = r.ending(), "run.error sandbox_evicted", true
	return s, w.resumed(ctx, c, mark, &s, first.Epoch)
}

func (w *world) cleared(ctx context.Context) (succession, error) {
	c, mark, s, first, err := w.opened(ctx, plain)
	if err == nil {
		err = w.clear(ctx, c, first.Epoch)
	}
	if err != nil {
		return s, err
	}
	s.Clears = 1
	return s, w.resumed(ctx, c, mark, &s, first.Epoch)
}

func (w *world) expired(ctx context.Context) (succession, error) {
	c, mark, s, first, err := w.opened(ctx, short)
	if err == nil {
		err = w.awaitGeneration(ctx, first.Started, s.Before.Generation)
	}
	if err != nil {
		return s, err
	}
	s.Should = true
	return s, w.resumed(ctx, c, mark, &s, first.Epoch)
}

func (w *world) betweenTurns(ctx context.Context) (succession, error) {
	c, mark, s, first, err := w.opened(ctx, plain)
	if err == nil {
		err = syscall.Kill(s.Before.PID, syscall.SIGKILL)
	}
	if err == nil {
		err = w.awaitGeneration(ctx, first.Started, s.Before.Generation)
	}
	if err != nil {
		return s, err
	}
	s.Should = true
	return s, w.resumed(ctx, c, mark, &s, first.Epoch)
}

func (w *world) orphaned(ctx context.Context) (succession, error) {
	c, mark, s, first, err := w.opened(ctx, plain)
	if err != nil {
		return s, err
	}
	if !w.KillOne("sandboxhost", syscall.SIGKILL) {
		return s, errors.New("there is no host of sandboxes to be killed")
	}
	s.Should = true
	return s, w.resumed(ctx, c, mark, &s, first.Epoch)
}

// idleAfter is how long a sandbox waits where that is what is tried: for longer than it
// takes to look at it.
const idleAfter = "10s"

// hibernated lets a sandbox wait, on a stack of its own: on the one of the other checks
// none is to go for that.
func (w *world) hibernated(ctx context.Context) (s succession, err error) {
	idle := &world{cfg: w.cfg, target: w.target, phrase: w.phrase, collector: w.collector}
	if err := idle.open(ctx, "idle", "--idle-after", idleAfter); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, idle.Stop(context.WithoutCancel(ctx))) }()
	c, mark, s, first, err := idle.opened(ctx, plain)
	if err != nil {
		return s, err
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var b apiclient.Binding
	err = stack.Until(wait, func() (bool, error) {
		b, err = idle.operator.Binding(wait, first.BindingID)
		return err == nil && b.Lease != nil && b.Lease.State == "hibernated" && b.Sandbox == nil, err
	})
	if err != nil {
		return s, fmt.Errorf("its lease does not say that it hibernates, but %+v: %w", b.Lease, err)
	}
	s.Should = true
	return s, idle.resumed(ctx, c, mark, &s, first.Epoch)
}

// awaitGeneration waits until the lease of a binding is a later one and nothing is left
// to conclude.
func (w *world) awaitGeneration(ctx context.Context, run apiclient.Started, generation uint32) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return stack.Until(ctx, func() (bool, error) {
		b, err := w.operator.Binding(ctx, run.BindingID)
		return err == nil && b.Generation > generation && b.Ending == 0, err
	})
}

// lost kills the replica that drives a run.
func (w *world) lost(ctx context.Context) error {
	c := w.talk(plain)
	run, err := c.at(ctx, 1, apiclient.Start{Message: w.phrase.script(say("at work"), busy())})
	if err != nil {
		return err
	}
	if err := w.speaks(ctx, 0, run.RunID); err != nil {
		return errors.Join(err, w.cancel(ctx, run.RunID))
	}
	p, err := w.Replica(1)
	if err != nil {
		return err
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		return err
	}
	r, err := w.end(ctx, 0, run)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	back := stack.Until(wait, func() (bool, error) { // for what comes next
		_, err := w.users[1].Run(wait, run.RunID)
		return err == nil, err
	})
	return errors.Join(judgeEnds([]string{r.ending()}, "run.error control_plane_lost"), back)
}
