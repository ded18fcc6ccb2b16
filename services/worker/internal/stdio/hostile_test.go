package stdio

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
)

// Whatever a program writes, its run has one clean end with a code, and nothing
// of the program is left.
func TestProgramsThatBreakTheProtocol(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"garbage", "garbage before ready", "not UTF-8", "NUL", "empty line", "two on a line", "key twice", "unknown field", "unknown type", "no type", "deep",
		"sequence in a draft", "terminal draft", "run.started draft", "interrupt draft", "made up call", "made up result", "result of nothing",
		"call under one id twice", "call without arguments", "arguments in two cases", "arguments are a list", "reordered", "open at the end",
		"ready twice", "another protocol", "talks before ready", "long line", "long line with an end", "endless line",
		"flood of logs", "flood of nothing", "flood of events", "garbage after the commit", "event after the commit", "commit twice", "commit with a call",
		"interrupt of both kinds", "asks about other arguments", "interrupt of nothing", "bad interrupt", "fails as it pleases",
		"exits at once", "exits after ready", "exits in its text", "exits in a line", "exits in a call", "closes its output", "leaves a child and ends",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, name, change{})
			s.tools.call = slow
			got := s.run(t, "run-1", "go")
			got.wantError(t, fault.Protocol)
			text, err := json.Marshal(got.end())
			must(t, err)
			for _, raw := range []string{"Welcome", "not JSON", "another thing", "fs.", "exit", s.world.Root} {
				if strings.Contains(string(text), raw) {
					t.Errorf("%q stands in %s", raw, text)
				}
			}
			if s.thread.state() != "" {
				t.Error("its state was committed")
			}
			// The same worker goes on.
			s.run(t, "run-2", "go").wantError(t, fault.Protocol)
		})
	}
}

// slow is a tool that ends with its run.
func slow(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
	if c.CallID == "slow" {
		<-ctx.Done()
		return harness.ToolResult{}, fault.From(ctx.Err(), "test")
	}
	return harness.ToolResult{Result: json.RawMessage(`1`)}, nil
}

func TestProgramThatIsNeverReady(t *testing.T) {
	t.Parallel()
	s := newStand(t, "never ready", change{preset: func(p *Preset) { p.StartupTimeout = Duration(50 * time.Millisecond) }})
	s.run(t, "run-1", "go").wantError(t, fault.Protocol)
}

// Silence ends at the deadline of the run.
func TestSilentPrograms(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"never ready", "silent", "silent in its text", "does not read"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, name, change{})
			r := s.start(t, "run-1", "go", 300*time.Millisecond)
			began := time.Now()
			got := s.read(t, r)
			end, ok := got.end().(event.RunCancelled)
			if !ok || end.Reason != event.CancelledByDeadline {
				t.Errorf("ended by %#v", got.end())
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

// A program that stays after its commit is ended, and its commit counts; so is
// what it left behind.
func TestProgramsThatStay(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"silent after the commit", "leaves a child"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, name, change{})
			s.run(t, "run-1", "go").wantFinished(t)
			if s.thread.state() != "kept" {
				t.Errorf("state %q", s.thread.state())
			}
		})
	}
}

func TestClosedInput(t *testing.T) {
	t.Parallel()
	newStand(t, "closes its input", change{}).run(t, "run-1", "go").wantFinished(t)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"exits in its text", "exits in a line", "leaves a child and ends"} {
		s := newStand(t, name, change{})
		s.world.SetLimit("memory")
		s.run(t, "run-1", "go").wantError(t, fault.SandboxLimit)
	}
}

// A cancel is said to the program, and holds whether it listens or not; nothing
// of it runs once the run has ended.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ends on cancel", "ignores cancel", "silent in its text", "does not read", "exits in a call"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, name, change{})
			called := make(chan struct{}, 8)
			s.tools.call = func(ctx context.Context, _ harness.ToolCall) (harness.ToolResult, error) {
				called <- struct{}{}
				<-ctx.Done()
				return harness.ToolResult{}, fault.From(ctx.Err(), "test")
			}
			r := s.start(t, "run-1", "go", time.Minute)
			var got events
			if strings.Contains(name, "call") || strings.Contains(name, "read") {
				<-called
			} else {
				for !strings.Contains(got.types(), "text.started") {
					batch, err := r.Next(t.Context())
					must(t, err)
					got = append(got, batch...)
				}
			}
			s.Cancel(t.Context(), "run-1", event.CancelledByClient)
			for {
				batch, err := r.Next(t.Context())
				if err != nil {
					break
				}
				got = append(got, batch...)
			}
			end, ok := got.end().(event.RunCancelled)
			if !ok || end.Reason != event.CancelledByClient {
				t.Errorf("ended by %#v", got.end())
			}
			if pids := s.processes(); len(pids) > 0 {
				t.Errorf("%d processes run after the cancel", len(pids))
			}
			if _, err := os.Stat(filepath.Join(s.world.Root, hosted.Home, "cancelled")); (err == nil) != (name == "ends on cancel") {
				t.Errorf("the program heard of the cancel: %v", err)
			}
		})
	}
}

func TestInterruptsThatThePolicyForbids(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"asks approval", "asks a form"} {
		s := newStand(t, name, change{construction: func(c *harness.Construction) { c.Interrupts = harness.InterruptPolicy{} }})
		s.run(t, "run-1", "go").wantError(t, fault.Protocol)
		if s.thread.interrupted != 0 {
			t.Error("an interrupt was committed")
		}
	}
}

// A person's answer cannot be turned into another call.
func TestCallsSomethingElseThanWasApproved(t *testing.T) {
	t.Parallel()
	s := newStand(t, "calls something else than what was approved", change{})
	got, err := s.resume(t, approvals(), harness.Decision{Tools: []harness.ToolDecision{
		{ToolCallID: "c1", Decision: event.DecisionApprove}, {ToolCallID: "c2", Decision: event.DecisionReject},
	}})
	if fault.CodeOf(err) != fault.Protocol || s.tools.seen() != "" {
		t.Errorf("%v; the tool saw %q; %+v", err, s.tools.seen(), got)
	}
}
