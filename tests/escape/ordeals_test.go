package escape

import (
	"context"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
)

// ordeal is something that a sandbox has to hold, and how its run ends.
type ordeal struct {
	what, agent, message string
	// ends are the terminals that tell the truth.
	ends []string
	// says is part of what it said.
	says string
	// cancel cancels the run once it has said something.
	cancel bool
	// long says that its log is not worth reading.
	long bool
}

// How runs end.
const (
	finished    = "run.finished"
	overLimit   = "run.error sandbox_limit"
	vanished    = "run.error sandbox_evicted"
	brokeRules  = "run.error protocol"
	outOfTime   = "run.cancelled deadline"
	calledOff   = "run.cancelled client_request"
	ownDefect   = "run.error internal"
	whileItGoes = "I am going on"
)

// Whatever a sandbox uses up, breaks or refuses to end, its run has one end with the
// right code, a neighbour works on, nothing of it is left, and its conversation goes
// on.
func TestAnAttackIsContained(t *testing.T) {
	w := theStack(t)
	for _, o := range slices.Concat(scriptOrdeals(t), programOrdeals(t)) {
		t.Run(strings.ReplaceAll(o.agent+" "+o.what, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if hosted(o.agent) {
				needsPython(t)
			}
			w.undergo(t, o)
		})
	}
}

func (w *world) undergo(t *testing.T, o ordeal) {
	t.Helper()
	c := w.talk(o.agent)
	var r turn
	w.besides(t, func() {
		run := c.begin(t, o.message)
		if o.cancel {
			c.sees(t, run, "text.delta")
			c.cancel(t, run)
		}
		if o.long {
			r = turn{run, []apiclient.Event{c.terminal(t, run)}}
			return
		}
		r = c.end(t, run)
	})
	if end := r.ending(t); !slices.Contains(o.ends, end) || !strings.Contains(r.text(t), o.says) {
		t.Errorf("ended as %s, want one of %v, and %q said: %s", end, o.ends, o.says, r)
	}
	w.leftAlone(t, c, r)
	next := c.say(t, harmless(o.agent))
	if next.last().Type != finished {
		t.Errorf("the next turn did not finish: %s", next)
	}
}

// leftAlone sees that nothing is left beside the worker and the runner of a
// conversation, where it still has them: nothing that runs, and nothing that has
// ended and that nobody waited for.
func (w *world) leftAlone(t *testing.T, c *talk, r turn) {
	t.Helper()
	until(t, "end of what was started", func(ctx context.Context) (bool, error) {
		b, err := w.operator.Binding(ctx, r.BindingID)
		if err != nil || b.Sandbox == nil {
			return err == nil, err
		}
		all, err := procs.List()
		if err != nil {
			return false, err
		}
		family := []int{b.Sandbox.PID}
		for grown := true; grown; {
			grown = false
			for _, p := range all {
				if slices.Contains(family, p.Parent) && !slices.Contains(family, p.PID) {
					family, grown = append(family, p.PID), true
				}
			}
		}
		most := 1
		if hosted(c.agent) {
			most = 2
		}
		return len(family) <= most, nil
	})
}

// hosted reports whether an agent is a program in a world of its own.
func hosted(agent string) bool {
	return agent == program || agent == briefProgram || agent == agentProgram
}

// harmless is a message that does nothing.
func harmless(agent string) string {
	if hosted(agent) {
		return "[]"
	}
	return `[{"do":"recall"}]`
}

func scriptOrdeals(t *testing.T) []ordeal {
	t.Helper()
	going := step{"do": "text", "text": whileItGoes}
	full := []step{{"do": "disk", "folder": "/workspace", "bytes": 1 << 30, "ms": 10_000}}
	return []ordeal{
		{what: "allocates without end", agent: script, message: plays(t, step{"do": "memory_hog", "bytes": 1 << 34}), ends: []string{overLimit}},
		{what: "starts threads without end", agent: script, message: plays(t, step{"do": "goroutines", "count": 5000, "threads": true, "ms": 1000}), ends: []string{overLimit}},
		{what: "forks without end", agent: script, message: plays(t, step{"do": "fork_bomb", "ms": 1500}), ends: []string{finished, overLimit}},
		{what: "leaves orphans", agent: script, message: plays(t, step{"do": "orphans", "count": 1000}), ends: []string{finished}, says: "made 1000 orphans: ok"},
		{what: "fills its disk", agent: script, message: plays(t, step{"do": "disk", "folder": "/workspace", "bytes": 1 << 30}), ends: []string{finished}, says: "ENOSPC"},
		{
			what: "fills its disk and fails", agent: script, ends: []string{overLimit},
			message: plays(t, step{"do": "parallel", "branches": [][]step{full, {{"do": "delay", "ms": 4000}, {"do": "exit", "code": 3}}}}),
		},
		{what: "spins", agent: brief, message: plays(t, step{"do": "spin", "ms": 600_000, "threads": 8}), ends: []string{outOfTime}},
		{what: "hangs", agent: script, message: plays(t, going, step{"do": "hang"}), ends: []string{calledOff}, says: whileItGoes, cancel: true},
		{what: "does not hear a cancel", agent: script, message: plays(t, going, step{"do": "ignore_cancel", "ms": 600_000}), ends: []string{calledOff}, cancel: true},
		{what: "exits", agent: script, message: plays(t, going, step{"do": "exit", "code": 0}), ends: []string{vanished}},
		{what: "panics", agent: script, message: plays(t, going, step{"do": "panic"}), ends: []string{ownDefect}},
		{what: "emits garbage", agent: script, message: plays(t, step{"do": "garbage"}), ends: []string{brokeRules}},
		{what: "emits against the rules", agent: script, message: plays(t, step{"do": "illegal", "what": "result without a call"}), ends: []string{brokeRules}},
		{what: "floods", agent: brief, message: plays(t, step{"do": "flood", "events": 100_000, "bytes": 65_536}), ends: []string{brokeRules, outOfTime}, long: true},
		{what: "outlives its sandbox", agent: hasty, message: plays(t, going, step{"do": "delay", "ms": 600_000}), ends: []string{overLimit}},
	}
}

func programOrdeals(t *testing.T) []ordeal {
	t.Helper()
	does := func(a attack) string {
		a["fatal"] = true
		return encode(t, []attack{a})
	}
	filling := func(path string, size int) string { return does(attack{"do": "hog_files", "path": path, "size": size}) }
	const mib = 1 << 20
	return []ordeal{
		{what: "allocates without end", agent: program, message: does(attack{"do": "hog_memory"}), ends: []string{overLimit}},
		{what: "forks without end", agent: program, message: does(attack{"do": "bomb"}), ends: []string{overLimit}},
		{what: "leaves orphans", agent: program, message: does(attack{"do": "orphans", "count": 200}), ends: []string{finished}, says: "made 200 orphans"},
		{what: "fills its workspace", agent: program, message: filling("/workspace", mib), ends: []string{overLimit}},
		{what: "fills its home", agent: program, message: filling("/home/agent", mib), ends: []string{overLimit}},
		{what: "fills its temporary folder", agent: program, message: filling("/tmp", mib), ends: []string{overLimit}},
		{what: "makes files without end", agent: program, message: filling("/workspace", 0), ends: []string{overLimit}},
		{what: "uses up its processor time", agent: program, message: does(attack{"do": "burn_processor", "seconds": 1}), ends: []string{overLimit}},
		{what: "spins", agent: briefProgram, message: does(attack{"do": "spin", "processes": 8}), ends: []string{outOfTime}},
		{what: "stays", agent: program, message: does(attack{"do": "stay"}), ends: []string{calledOff}, says: "staying", cancel: true},
		{what: "kills all that it can", agent: program, message: does(attack{"do": "kill_everything"}), ends: []string{finished}, says: "it lives"},
		{what: "writes bytes", agent: program, message: does(attack{"do": "garbage", "kind": "bytes"}), ends: []string{brokeRules}},
		{what: "writes an endless line", agent: program, message: does(attack{"do": "garbage", "kind": "endless line"}), ends: []string{brokeRules}},
		{what: "floods", agent: program, message: does(attack{"do": "garbage", "kind": "flood"}), ends: []string{brokeRules}},
		{what: "says that its run has finished", agent: program, message: does(attack{"do": "garbage", "kind": "end"}), ends: []string{brokeRules}},
		{what: "falls silent", agent: program, message: does(attack{"do": "garbage", "kind": "silence"}), ends: []string{brokeRules}},
	}
}
