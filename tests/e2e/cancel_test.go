package e2e

import (
	"crypto/rand"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
)

type cancelled struct {
	Reason      string `json:"reason"`
	SideEffects string `json:"side_effect_status"`
}

func (r turn) cancelled(t *testing.T) (c cancelled) {
	t.Helper()
	if r.last().Type != "run.cancelled" {
		t.Fatalf("was not cancelled: %s", r)
	}
	data(t, r.last(), &c)
	return c
}

// A cancel is answered with what is known, the log says the same, and what was
// said before it stays said.
func TestARunIsCancelledWhileItSpeaks(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c := w.talk()
	run := c.begin(t, ">>say before\n>>sleep 60000\n>>say after")
	c.sees(t, run.RunID, "text.delta")
	got, err := w.user.Cancel(t.Context(), run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if want := (apiclient.Cancelled{Cancelled: true, RunID: run.RunID, Confirmed: true, SideEffects: "none"}); got != want {
		t.Errorf("answered %+v, want %+v", got, want)
	}
	r := c.end(t, run)
	if end := r.cancelled(t); end.Reason != "client_request" || end.SideEffects != "none" {
		t.Errorf("the log says %+v", end)
	}
	if text := r.text(t); text != "before" {
		t.Errorf("it said %q", text)
	}
	again, err := w.user.Cancel(t.Context(), run.RunID)
	if err != nil || again != got {
		t.Errorf("repeated: %+v, %v", again, err)
	}
	c.tell(t, "go on")
}

// A tool that was called cannot be called back: the end says so, and nothing
// calls it again.
func TestACancelledRunOwnsUpToItsToolCall(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c := w.talk()
	name := "x-" + rand.Text()
	run := c.begin(t, `>>call gate.pass {"name":"`+name+`"}`)
	w.called(t, name)
	got, err := w.user.Cancel(t.Context(), run.RunID)
	if err != nil || !got.Cancelled || !got.Confirmed || got.SideEffects == "none" {
		t.Errorf("answered %+v, %v", got, err)
	}
	r := c.end(t, run)
	if end := r.cancelled(t); end.SideEffects != got.SideEffects {
		t.Errorf("the log says %+v, the answer said %+v", end, got)
	}
	if len(r.of("tool.started")) != 1 || len(r.of("tool.finished")) != 0 {
		t.Errorf("a call without a result: %s", r)
	}
	if err := w.gate.Open(name); err != nil {
		t.Fatal(err)
	}
	c.tell(t, "go on")
	if n, err := w.gate.Calls(name); err != nil || n != 1 {
		t.Errorf("called %d times, %v", n, err)
	}
}

// A run that finished first stays finished.
func TestACancelThatIsTooLateSaysSo(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	r := w.talk().tell(t, ">>say done")
	got, err := w.user.Cancel(t.Context(), r.RunID)
	if err != nil || got.Cancelled || !got.Confirmed || got.SideEffects != "none" {
		t.Errorf("answered %+v, %v", got, err)
	}
}
