// Package conformance judges adapters: the same fixtures for all of them, on
// Connect and on the HTTP routes of the worker, against brokers that are real
// servers on a real committed record. What the fixtures have seen is what an
// adapter may claim as its capabilities, no more and no less.
package conformance

import (
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/workerclient"
)

// Setup says how to make an adapter, and how to talk to it.
type Setup struct {
	// New makes the adapter of one worker, in a world of its own. workspace is the
	// worker's own folder, which has the files of the binding. It logs to logger and
	// nowhere else.
	New func(t *testing.T, workspace string, logger *slog.Logger) harness.Adapter
	// Options of the agent.
	Options json.RawMessage
	// Wire of the agent's model; Chat Completions where it is empty.
	Wire harness.Wire
	// Over are the ways to speak to the worker, of Ways; all of them where it is
	// empty. Every adapter is judged over all of them. What is tried besides, another
	// wire of its models or another program, has nothing to do with how the worker
	// is spoken to.
	Over []string
	// Phrase turns what is meant into a message that makes the harness do it.
	Phrase func(Intent) string
	// Unsupported has the optional fixtures that the adapter does not do, by name,
	// each with a reason. What they judge it must say to be unsupported.
	Unsupported map[string]string
}

// The ways to speak to a worker.
const (
	Connect = "connect"
	HTTP    = "http"
)

// Ways are all of them.
func Ways() []string { return []string{Connect, HTTP} }

func wireOf(way string) func(*rpctest.Client) workerclient.Client {
	if way == HTTP {
		return workerclient.NewRoutes
	}
	return workerclient.NewConnect
}

// Run runs every fixture over each way, side by side, and then compares what was
// seen with what the adapter claims. That no goroutine is left is for the package
// to check that calls it, with goleak at its end.
func Run(t *testing.T, s Setup) {
	t.Helper()
	if s.Wire == "" {
		s.Wire = harness.WireOpenAIChat
	}
	if len(s.Over) == 0 {
		s.Over = Ways()
	}
	all := fixtures()
	for name, reason := range s.Unsupported {
		i := slices.IndexFunc(all, func(f fixture) bool { return f.name == name })
		if i < 0 || !all[i].optional || reason == "" {
			t.Fatalf("Unsupported names %q, which is no optional fixture, or gives no reason", name)
		}
	}
	passed, g := &tally{of: map[string][]levels{}}, newGround(t)
	t.Run("on", func(t *testing.T) { // ends once all that runs side by side has ended
		for _, way := range s.Over {
			for _, f := range all {
				if s.Unsupported[f.name] != "" {
					continue
				}
				t.Run(way+"/"+f.name, func(t *testing.T) {
					t.Parallel()
					found := levels{}
					t.Cleanup(func() { passed.add(t, f.name, found) }) // the last one, after the workers' end
					b := newBench(t, s, g, wireOf(way))
					b.keys, b.found = f.keys, found
					f.run(b)
				})
			}
		}
	})
	t.Run("capabilities", func(t *testing.T) { compare(t, s, all, passed.of) })
}

// tally has what a fixture has seen over each way over which it has passed.
type tally struct {
	mu sync.Mutex
	of map[string][]levels
}

func (p *tally) add(t *testing.T, fixture string, found levels) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !t.Failed() && !t.Skipped() {
		p.of[fixture] = append(p.of[fixture], found)
	}
}

// fixture is one thing that is tried.
type fixture struct {
	name string
	// keys of the capabilities that it judges: where it passes they are native, or
	// what it says with only.
	keys []string
	// optional fixtures may be declared unsupported.
	optional bool
	run      func(*bench)
}

func fixtures() []fixture {
	return slices.Concat(turns(), files(), calls(), interrupts(), ends(), failures(), leases())
}
