package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

// death is one step of a run at which its worker is killed with SIGKILL. What comes of
// it is promised by docs/protocol.md, under the same words.
type death struct {
	step string
	// play runs the turn up to there, kills the worker, and gives the turn's end.
	play func(t *testing.T, l *life) turn
}

func turnDeaths() []death {
	return []death{
		{"before it is claimed", dieUnclaimed},
		{"before bind", dieBeforeBind},
		{"after ready", dieReady},
		{"bound before the first event", dieBound},
		{"in text", dieInText},
		{"before the side effect of a tool", dieBeforeEffect},
		{"after the side effect of a tool", dieAfterEffect},
		{"after the result of a tool", dieAfterResult},
		{beforeHead, dieBeforeHead},
		{afterHead, dieAfterHead},
		{"after the terminal", dieAfterTerminal},
	}
}

// Steps at which turns and questions die.
const (
	beforeHead = "between snapshot and head"
	afterHead  = "after the head before the terminal"
)

// life is a conversation whose worker is killed.
type life struct {
	*talk

	// mark stands in the turn that the worker dies in, name is what the tool is
	// called with there.
	mark, name string
	// question is what the conversation waits for.
	question pending
}

func (w *world) life() *life { return &life{talk: w.talk(), mark: word(), name: word()} }

// call is a message that has the tool called, and goes on then.
func (l *life) call(rest string) string {
	return fmt.Sprintf(">>call gate.pass {\"name\":%q}\n%s\n%s", l.name, rest, l.mark)
}

// However far a turn is when its worker is killed, it has one end, and that is the
// one which is promised for the step: it is carried over as long as it has done
// nothing, it is finished as soon as its head is committed, and in between it says
// what may have happened. Nothing happens twice, and the conversation goes on from
// what was committed.
func TestAWorkerIsKilledAtEachStepOfATurn(t *testing.T) {
	w := mortal(t)
	calls := map[string]int{}
	for _, d := range turnDeaths() {
		t.Run(strings.ReplaceAll(d.step, " ", "_"), func(t *testing.T) {
			l := w.life()
			r := d.play(t, l)
			p := of(t, ofTurn, d.step)
			l.check(t, p, r)
			calls[l.name] = p.calls
		})
	}
	w.calledOnly(t, calls) // nor later, when everything else was over
}

// calledOnly sees how often the tool was called under each name.
func (w *world) calledOnly(t *testing.T, calls map[string]int) {
	t.Helper()
	for name, want := range calls {
		if n, err := w.gate.Calls(name); err != nil || n != want {
			t.Errorf("the tool was called %d times as %s, want %d (%v)", n, name, want, err)
		}
	}
}

func (l *life) check(t *testing.T, p promise, r turn) {
	t.Helper()
	if end := r.ending(t); end != p.ends {
		t.Errorf("ended as %s, want %s: %s", end, p.ends, r)
	}
	status := l.ended(t, r)
	if said := r.effects(t); status.SideEffects != p.effects || said != "" && said != p.effects {
		t.Errorf("side effects: %q in the log and %q in the status, want %s", said, status.SideEffects, p.effects)
	}
	if len(r.of("run.started")) != 1 {
		t.Errorf("a run that starts more than once: %s", r)
	}
	next := l.tell(t, "What do you remember?")
	if knows, done := strings.Contains(next.text(t), l.mark), r.last().Type == "run.finished"; knows != done {
		t.Errorf("finished: %v, remembered: %v: %q", done, knows, next.text(t))
	}
	after, err := l.client.Run(t.Context(), next.RunID)
	if err != nil || after.Generation != p.generation || next.BindingID != r.BindingID {
		t.Errorf("the next turn is of generation %d, want %d (%v)", after.Generation, p.generation, err)
	}
	l.w.calledOnly(t, map[string]int{l.name: p.calls})
}

// ending is a terminal in two words.
func (r turn) ending(t *testing.T) string {
	t.Helper()
	if r.last().Type != "run.error" {
		return r.last().Type
	}
	return "run.error " + r.failure(t).Code
}

// effects are the side effects that a terminal tells of, if it is one that does.
func (r turn) effects(t *testing.T) string {
	t.Helper()
	var d struct {
		SideEffects string `json:"side_effect_status"`
	}
	data(t, r.last(), &d)
	return d.SideEffects
}

func dieUnclaimed(t *testing.T, l *life) turn {
	t.Helper()
	kill(t, l.w.spare(t))
	l.w.spare(t) // another one, since its end was noticed: nobody is given a dead one
	return l.say(t, l.mark)
}

func dieBeforeBind(t *testing.T, l *life) turn {
	t.Helper()
	spare := l.w.spare(t)
	hold(t, spare) // it is claimed, and does not say that it is ready
	run := l.begin(t, l.mark)
	l.w.lease(t, run, "claiming")
	kill(t, spare)
	return l.end(t, run)
}

func dieReady(t *testing.T, l *life) turn {
	t.Helper()
	l.w.spare(t)
	release := l.w.holdProgram(t, "capability") // without a capability nothing is bound
	run := l.begin(t, l.mark)
	l.w.lease(t, run, "ready")
	kill(t, l.worker(t, run.BindingID))
	release()
	return l.end(t, run)
}

func dieBound(t *testing.T, l *life) turn {
	t.Helper()
	first := l.tell(t, "a first turn")
	worker := l.worker(t, first.BindingID)
	hold(t, worker) // bound, and given no run any more
	run := l.begin(t, l.mark)
	kill(t, worker)
	return l.end(t, run)
}

func dieInText(t *testing.T, l *life) turn {
	t.Helper()
	run := l.begin(t, ">>say half\n>>sleep 60000\n"+l.mark)
	l.sees(t, run.RunID, "text.delta")
	kill(t, l.worker(t, run.BindingID))
	return l.end(t, run)
}

func dieBeforeEffect(t *testing.T, l *life) turn {
	t.Helper()
	l.tell(t, "a first turn")                     // for which the broker is asked what tools there are
	if err := l.w.gate.Open(l.name); err != nil { // whoever calls gets through
		t.Fatal(err)
	}
	run := l.begin(t, ">>sleep 3000\n"+l.call(""))
	l.sees(t, run.RunID, "run.started")
	release := l.w.holdProgram(t, "toolbroker") // which asks the records, and does not write them before it is called
	l.sees(t, run.RunID, "tool.started")
	kill(t, l.worker(t, run.BindingID))
	r := l.end(t, run)
	release() // it gets the call only now
	return r
}

func dieAfterEffect(t *testing.T, l *life) turn {
	t.Helper()
	run := l.begin(t, l.call(""))
	l.w.called(t, l.name)
	kill(t, l.worker(t, run.BindingID))
	r := l.end(t, run)
	if err := l.w.gate.Open(l.name); err != nil { // whoever calls again gets through
		t.Fatal(err)
	}
	return r
}

func dieAfterResult(t *testing.T, l *life) turn {
	t.Helper()
	if err := l.w.gate.Open(l.name); err != nil {
		t.Fatal(err)
	}
	run := l.begin(t, l.call(">>say and\n>>sleep 60000"))
	l.sees(t, run.RunID, "tool.finished")
	kill(t, l.worker(t, run.BindingID))
	return l.end(t, run)
}

// slow is what a turn begins with that has a state to commit a while after it has
// said something. Parts are stopped in that while, also on a busy machine.
const slow = ">>say early\n>>sleep 3000\n>>say late\n"

// aboutToCommit brings a turn that is slow to where its state is written and its head
// waits for the log, since the control plane does not take its last events.
func (l *life) aboutToCommit(t *testing.T, run apiclient.Started) (worker procs.Process, release func()) {
	t.Helper()
	l.sees(t, run.RunID, "text.delta")
	worker = l.worker(t, run.BindingID)
	release = l.w.holdQuiet(t, "controlplane")
	l.w.snapshotOf(t, run)
	return worker, release
}

// diesBeforeHead kills the worker of a slow turn between snapshot and head. The state
// facade may have been asked for the head by then, and comes to it when the end of the
// run is decided.
func (l *life) diesBeforeHead(t *testing.T, run apiclient.Started) turn {
	t.Helper()
	worker, release := l.aboutToCommit(t, run)
	releaseState := l.w.holdQuiet(t, "statefacade")
	kill(t, worker)
	release()
	r := l.end(t, run)
	releaseState()
	return r
}

const (
	// aims is how often a window is aimed at that may be missed.
	aims = 5
	// headTimeout bounds the wait for a head whose log is complete.
	headTimeout = 5 * time.Second
)

// diesAfterHead kills the worker of a slow turn before it has heard that its head,
// the first of its conversation, was committed.
func (l *life) diesAfterHead(t *testing.T, begin func() apiclient.Started) turn {
	t.Helper()
	for range aims {
		run := begin()
		worker, release := l.aboutToCommit(t, run)
		wake := hold(t, worker)
		release()
		if l.committed(t, run) {
			kill(t, worker)
			return l.end(t, run)
		}
		// It was stopped before it had asked for the head: another conversation.
		wake()
		l.end(t, run)
		l.talk = l.w.talk()
	}
	t.Fatalf("%d workers were stopped before they had asked for their heads", aims)
	return turn{}
}

// committed waits a while for the first head of a conversation.
func (l *life) committed(t *testing.T, run apiclient.Started) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), headTimeout)
	defer cancel()
	return stack.Until(ctx, func() (bool, error) {
		b, err := l.w.operator.Binding(ctx, run.BindingID)
		return err == nil && b.DurableRevision == 1, err
	}) == nil
}

func dieBeforeHead(t *testing.T, l *life) turn {
	t.Helper()
	return l.diesBeforeHead(t, l.begin(t, slow+l.mark))
}

func dieAfterHead(t *testing.T, l *life) turn {
	t.Helper()
	r := l.diesAfterHead(t, func() apiclient.Started { return l.begin(t, slow+l.mark) })
	if revision := r.finished(t); revision != 1 {
		t.Errorf("revision %d", revision)
	}
	return r
}

func dieAfterTerminal(t *testing.T, l *life) turn {
	t.Helper()
	r := l.tell(t, l.mark)
	l.ended(t, r)
	kill(t, l.worker(t, r.BindingID))
	l.w.generation(t, r.BindingID, 2) // by itself: nobody asks for anything
	return r
}
