package acp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// Several agents answer a model that failed with a normal end of turn. The
// outcome is what the endpoint saw.
func TestTheModelDecidesTheOutcome(t *testing.T) {
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	stream := func(end func(), chunks ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, c := range chunks {
				_, _ = fmt.Fprintf(w, "data: %s\n\n", c)
			}
			_ = http.NewResponseController(w).Flush()
			end()
		}
	}
	part := `{"choices":[{"index":0,"delta":{"content":"part"}}]}`
	for name, tc := range map[string]struct {
		model http.HandlerFunc
		end   string
		want  fault.Code
	}{
		"refused, end_turn":         {status(400, `{"error":{"code":"model_failed"}}`), "stop end_turn", fault.ModelFailed},
		"refused, error":            {status(400, `{"error":{"code":400}}`), "error -32603", fault.ModelFailed},
		"failed, end_turn":          {status(500, ""), "stop end_turn", fault.ModelUnavailable},
		"throttled, end_turn":       {status(429, ""), "stop end_turn", fault.ModelUnavailable},
		"the proxy's own code":      {status(504, `{"error":{"code":"deadline_exceeded"}}`), "stop end_turn", fault.DeadlineExceeded},
		"reset, end_turn":           {stream(func() { panic(http.ErrAbortHandler) }, part), "stop end_turn", fault.ModelFailed},
		"cut cleanly, end_turn":     {stream(func() {}, part), "stop end_turn", fault.ModelFailed},
		"cut cleanly, an error":     {stream(func() {}, part), "error -32603", fault.ModelFailed},
		"an error in it, end_turn":  {stream(func() {}, `{"error":{"message":"x"}}`), "stop end_turn", fault.ModelFailed},
		"refused, max_turn_request": {status(400, ""), "stop max_turn_requests", fault.ModelFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			s.model.answer = tc.model
			o := s.run(t, "run-1", lines("model x", tc.end))
			o.wantError(t, tc.want)
			if tc.want == fault.ModelUnavailable && fault.From(o.err, "").RetryAfter() == 0 {
				t.Error("how long to wait is lost")
			}
			if s.world.running() || s.thread.revision() != 0 {
				t.Error("something was left")
			}
		})
	}
}

func TestARetryThatSucceedsDecides(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", lines("model >>error 500", "model >>say fine"))
	o.wantFinished(t, "end_turn")
}

func TestASideCallDoesNotDecide(t *testing.T) {
	s := newStand(t)
	s.run(t, "run-1", lines("model >>say fine", "model side >>error 500")).wantFinished(t, "end_turn")
	s.run(t, "run-2", lines("model >>error 400", "model side >>say a title")).wantError(t, fault.ModelFailed)
}

func TestStopReasons(t *testing.T) {
	for reason, want := range map[string]fault.Code{
		"end_turn": "", "refusal": "", "max_tokens": "", "max_turn_requests": "", "cancelled": fault.Protocol,
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			o := s.run(t, "run-1", lines("model x", "stop "+reason))
			if want != "" {
				o.wantError(t, want)
				return
			}
			o.wantFinished(t, reason)
		})
	}
}

func TestAnErrorOfTheAgent(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", lines("model x", "error -32603"))
	o.wantError(t, fault.Protocol)
	if strings.Contains(o.err.Error(), "secret-of-the-agent") {
		t.Error("the agent's text is in the error")
	}
}

func TestLimits(t *testing.T) {
	s := newStand(t, func(s *stand) { s.build.Limits.ModelCalls, s.build.Limits.ToolCalls = 2, 1 })
	o := s.run(t, "run-1", lines("model x", "model y", "model z", "error -32603"))
	o.wantFinished(t, "max_model_calls")
	if s.model.asked() != 2 {
		t.Errorf("the model was asked %d times", s.model.asked())
	}
	if w := of[event.Warning](o.recorder); len(w) != 1 || w[0].Code != "max_model_calls" {
		t.Errorf("warnings %+v", w)
	}
	o = s.run(t, "run-2", lines(`mcp fs_read {}`, `mcp fs_read {}`))
	o.wantFinished(t, "end_turn")
	if e := of[event.ToolError](o.recorder); len(e) != 1 || e[0].Code != "capacity" || len(s.tools.called()) != 1 {
		t.Errorf("errors %+v, calls %d", e, len(s.tools.called()))
	}
}

func TestStateThatIsTooLarge(t *testing.T) {
	s := newStand(t, func(s *stand) { s.build.Limits.StateBytes = 5000 })
	s.run(t, "run-1", lines("model x", "write sessions/big "+noise(20_000))).wantError(t, fault.StateTooLarge)
}

func TestACommitThatFails(t *testing.T) {
	s := newStand(t)
	s.thread.commitErr = fault.New(fault.ThreadDurabilityUncertain, "test")
	s.run(t, "run-1", "text x").wantError(t, fault.ThreadDurabilityUncertain)
	s.thread.commitErr = nil
	o := s.run(t, "run-2", "history")
	o.wantFinished(t, "end_turn")
	if o.text() != "prompts=1" {
		t.Errorf("what was not committed is still there: %q", o.text())
	}
}

// What the agent leaves open is closed: no result is made up, no success either.
func TestOpenCallsAreClosed(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", lines(
		`raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":{"sessionUpdate":"tool_call","toolCallId":"t1","title":"bash","status":"in_progress","rawInput":{"command":"ls"}}}}`))
	o.wantFinished(t, "end_turn")
	if e := of[event.ToolError](o.recorder); len(e) != 1 || e[0].Code != "tool_outcome_unknown" {
		t.Errorf("errors %+v", e)
	}
}
