package runs_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds a wait for something that must come. It is no measure of
// anything: a test that needs it all has failed.
const patience = time.Minute

func started() event.Data {
	return event.RunStarted{HarnessID: runstest.HarnessID, AdapterVersion: runstest.AdapterVersion}
}

// turn says a text, commits, and finishes, as a worker that means well does.
func turn(s **runstest.Stack, text string) runstest.Script {
	return func(ctx context.Context, p *runstest.Play) error {
		if err := p.Emit(ctx, started()); err != nil {
			return err
		}
		if err := p.Text(ctx, "m1", text); err != nil {
			return err
		}
		if err := (*s).Commit(ctx, p, "snap-"+p.Turn.Envelope.RunID); err != nil {
			return err
		}
		return p.Emit(ctx, event.RunFinished{StopReason: "stop"})
	}
}

func newStack(t *testing.T, script func(**runstest.Stack) runstest.Script, o runstest.Options) *runstest.Stack {
	t.Helper()
	var s *runstest.Stack
	s = runstest.New(t, script(&s), o)
	return s
}

func start(t *testing.T, s *runstest.Stack, message string) runs.Started {
	t.Helper()
	r, err := s.Runs.Start(t.Context(), runstest.Caller(), runs.StartRequest{AgentID: "demo", ConversationID: "c1", Message: message})
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	return r
}

// follow reads a run of the conversation c1 to its terminal.
func follow(t *testing.T, s *runstest.Stack, runID string) []event.Event {
	t.Helper()
	return followIn(t, s, "c1", runID)
}

func followIn(t *testing.T, s *runstest.Stack, conversation, runID string) []event.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out []event.Event
	m := event.NewMachine(runID, conversation, event.DefaultBounds())
	err := s.Runs.Follow(ctx, runstest.Caller(), runID, runs.FollowOptions{}, func(seq uint64, raw json.RawMessage) error {
		var e event.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		if e.Sequence != seq {
			t.Errorf("event %d stands at %d", e.Sequence, seq)
		}
		out = append(out, e)
		return m.Accept(e)
	})
	if err != nil {
		t.Fatalf("Follow: %v (after %d events)", err, len(out))
	}
	if _, ok := m.Terminal(); !ok {
		t.Fatal("the log ends without a terminal")
	}
	return out
}

func last[T event.Data](t *testing.T, events []event.Event) T {
	t.Helper()
	d, ok := events[len(events)-1].Data.(T)
	if !ok {
		t.Fatalf("the run ends with %+v, want a %T", events[len(events)-1].Data, d)
	}
	return d
}

func document(t *testing.T, s *runstest.Stack, runID string) binding.RunDocument {
	t.Helper()
	var d binding.RunDocument
	waittest.Until(t, "the run has its document", func() bool {
		var err error
		d, err = s.Writer.Backend().LoadRun(t.Context(), runID)
		if err != nil && !errors.Is(err, binding.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	})
	return d
}
