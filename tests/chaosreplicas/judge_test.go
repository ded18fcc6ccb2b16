package chaosreplicas

import (
	"encoding/json"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
)

func logged(types ...string) []apiclient.Event {
	events := make([]apiclient.Event, len(types))
	for i, typ := range types {
		events[i] = apiclient.Event{Type: typ, Sequence: uint64(i), Raw: json.RawMessage(`{"type":"` + typ + `"}`)}
	}
	return events
}

func texts(events []apiclient.Event) (out []string) {
	for _, e := range events {
		out = append(out, kept(e))
	}
	return out
}

// What a stream may have given, and what it may not.
func TestWhatIsABeginningOfALog(t *testing.T) {
	log := logged("run.started", "text.started", "text.finished", "run.finished")
	for n := range len(log) + 1 {
		if !begins(texts(log[:n]), log) {
			t.Errorf("the first %d are no beginning", n)
		}
	}
	for name, stream := range map[string][]apiclient.Event{
		"a gap":          {log[0], log[2]},
		"a repeat":       {log[0], log[0]},
		"another event":  logged("run.started", "text.started", "tool.started"),
		"more than that": append(logged("run.started", "text.started", "text.finished", "run.finished"), log[3]),
		"another end":    logged("run.started", "text.started", "text.finished", "run.error"),
	} {
		if begins(texts(stream), log) {
			t.Errorf("%s counts as a beginning", name)
		}
	}
}

// What may come of a run that is out of service, and what is stale.
func TestWhatClosesARun(t *testing.T) {
	for i, e := range logged("run.started", "text.finished", "reasoning.finished", "tool.error", "namespace.exited", "run.error", "run.cancelled") {
		if !closes(e) {
			t.Errorf("event %d, %s, does not close a run", i, e.Type)
		}
	}
	for _, e := range logged("text.delta", "run.started", "text.started", "tool.started", "tool.finished", "usage.updated", "warning") {
		if closes(e) {
			t.Errorf("%s at %d closes a run", e.Type, e.Sequence)
		}
	}
}

// A report that shows nothing, or something wrong, fails.
func TestVerdict(t *testing.T) {
	good := Report{Runs: talkers, Finished: 1, Kills: 1, Replacements: 1, Streams: 1}
	if err := good.Verdict(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Report){
		"no kills":           func(r *Report) { r.Kills = 0 },
		"no replacements":    func(r *Report) { r.Replacements = 0 },
		"no runs":            func(r *Report) { r.Runs = 0 },
		"none finished":      func(r *Report) { r.Finished = 0 },
		"no streams":         func(r *Report) { r.Streams = 0 },
		"two terminals":      func(r *Report) { r.RunsWithoutOneTerminal = 1 },
		"a stream of lies":   func(r *Report) { r.PrefixViolations = 1 },
		"a stale event":      func(r *Report) { r.StaleAccepted = 1 },
		"a goroutine left":   func(r *Report) { r.GoroutinesLeft = 1 },
		"a descriptor left":  func(r *Report) { r.DescriptorsLeft = 1 },
		"anything else said": func(r *Report) { r.say("run %s: event 1 stands at 2", "run_1") },
	} {
		r := good
		change(&r)
		if r.Verdict() == nil {
			t.Errorf("%s passes", name)
		}
	}
}
