package acp_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/worker/internal/harness"
)

// cancelAt runs a turn and cancels it at the first event of a type.
func cancelAt(t *testing.T, s *stand, at event.Type, message string) (outcome, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := newRecorder("run-1")
	var began time.Time
	go func() {
		r.wait(t, func(e event.Event) bool { return e.Type() == at })
		began = time.Now()
		cancel()
	}()
	res, err := s.runtime.Stream(ctx, harness.Turn{RunID: "run-1", ConversationID: conversation, Message: message}, s.facades(r), r)
	took := time.Since(began)
	r.over(t)
	return outcome{r, res, err}, took
}

func TestCancel(t *testing.T) {
	for name, tc := range map[string]struct {
		mode    string
		at      event.Type
		message string
	}{
		"in its text":          {"normal", event.TypeTextDelta, lines("text x", "hang")},
		"in a model's stream":  {"normal", event.TypeTextDelta, "model >>say x\n>>sleep 20000"},
		"in a tool":            {"normal", event.TypeToolStarted, `mcp fs_read {}`},
		"deaf":                 {"normal", event.TypeTextDelta, lines("text x", "deaf")},
		"deaf and stubborn":    {"stubborn", event.TypeTextDelta, lines("text x", "deaf")},
		"with a flood":         {"normal", event.TypeTextDelta, lines("flood")},
		"with a question open": {"normal", event.TypeTextDelta, lines("text x", `ask t1 bash execute {"command":"ls"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, func(s *stand) {
				s.preset.Env[envAgent] = tc.mode
				s.config.Siblings = time.Minute
			})
			ended := make(chan error, 1)
			s.tools.answer = func(ctx context.Context, _ harness.ToolCall) (harness.ToolResult, error) {
				<-ctx.Done()
				ended <- ctx.Err()
				return harness.ToolResult{}, fault.From(ctx.Err(), "test")
			}
			o, took := cancelAt(t, s, tc.at, tc.message)
			o.wantError(t, fault.Cancelled)
			if s.world.running() {
				t.Error("the agent is still there")
			}
			if took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			if tc.at == event.TypeToolStarted && name == "in a tool" {
				if err := <-ended; err == nil {
					t.Error("the call was not ended")
				}
			}
			s.tools.answer = nil
			s.run(t, "run-2", "text y").wantFinished(t, "end_turn")
		})
	}
}

// An agent that never answers its prompt ends with the run's deadline.
func TestDeadline(t *testing.T) {
	s := newStand(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	s.runWith(t, ctx, "run-1", "deaf").wantError(t, fault.DeadlineExceeded)
}

// What a run has started does not outlive it, whatever the agent says.
func TestNothingOutlivesARun(t *testing.T) {
	s := newStand(t)
	child := s.world.real("/child")
	s.run(t, "run-1", lines("child "+child, "text x")).wantFinished(t, "end_turn")
	pid := read(t, child)
	died := func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	}
	// It has its SIGKILL, and dies when it is scheduled the next time.
	waittest.Until(t, "the child of the run dies", died)
}

// What comes after the answer belongs to no turn.
func TestUpdatesAfterTheTurn(t *testing.T) {
	s := newStand(t, func(s *stand) { s.preset.Env[envAgent] = "stubborn" })
	o := s.run(t, "run-1", lines("text x",
		`later 50 {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"late"}}}}`))
	o.wantFinished(t, "end_turn")
	if o.text() != "x" {
		t.Errorf("text %q", o.text())
	}
}
