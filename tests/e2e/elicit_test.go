package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// A tool's server asks the user something in the midst of a call. The run ends with
// that question as a form, the answer comes by the public route, another run makes
// the call again, and the server is told what the user said.
func TestAToolAsksTheUser(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c := w.talk()
	asked := c.say(t, ">>call gate.ask {}")
	if asked.last().Type != "run.interrupted" {
		t.Fatalf("nobody was asked: %s", asked)
	}
	state, err := w.user.InterruptState(t.Context(), c.conversation, stack.Agent)
	if err != nil {
		t.Fatal(err)
	}
	q := state.Interrupt
	if q == nil || q.InterruptType != "form_input" || !strings.Contains(q.Prompt, "Which branch?") || len(q.Fields) != 1 || state.RunID != asked.RunID {
		t.Fatalf("what is asked: %+v", state)
	}
	_, err = w.user.Resume(t.Context(), asked.RunID, apiclient.Resume{InterruptID: q.InterruptID, Revision: state.Revision, Form: json.RawMessage(`{"tree":"main"}`)})
	refused(t, "an answer that does not fit", err, http.StatusBadRequest, "invalid_request")
	answer := apiclient.Resume{InterruptID: q.InterruptID, Revision: state.Revision, Form: json.RawMessage(`{"branch":"release-7"}`)}
	s, err := w.user.Resume(t.Context(), asked.RunID, answer)
	if err != nil {
		t.Fatal(err)
	}
	r := c.end(t, s)
	r.finished(t)
	finished := r.of("tool.finished")
	if len(finished) != 1 || !strings.Contains(string(finished[0].Data), `\"action\":\"accept\"`) || !strings.Contains(string(finished[0].Data), "release-7") {
		t.Errorf("the server was told something else: %s", r)
	}
	again, err := w.user.Resume(t.Context(), asked.RunID, answer)
	if err != nil || again.RunID != s.RunID {
		t.Errorf("the same answer again: %+v, %v", again, err)
	}
}
