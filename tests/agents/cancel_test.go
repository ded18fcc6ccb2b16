package agents

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
)

// cancel cancels a run that must be under way, and follows it to its end.
func (c *talk) cancel(t *testing.T, run apiclient.Started) turn {
	t.Helper()
	_, programs := c.inside(t, run.BindingID)
	if len(programs) == 0 {
		t.Errorf("nothing of the agent runs, so a cancel shows nothing")
	}
	begun := time.Now()
	got, err := c.w.user.Cancel(t.Context(), run.RunID)
	if err != nil || !got.Cancelled || !got.Confirmed {
		t.Fatalf("answered %+v, %v", got, err)
	}
	t.Logf("%d processes cancelled within %v, side effects %s", len(programs), time.Since(begun).Round(time.Millisecond), got.SideEffects)
	r := c.end(t, run)
	var end struct {
		Reason      string `json:"reason"`
		SideEffects string `json:"side_effect_status"`
	}
	r.ended(t, "run.cancelled", &end)
	if end.Reason != "client_request" || end.SideEffects != got.SideEffects {
		t.Errorf("the log says %+v, the answer said %+v", end, got)
	}
	c.checkEmpty(t, run.BindingID)
	return r
}

// A cancel in the middle of an answer ends the agent: what was said before stays
// said, and nothing comes after. One in the middle of a command ends the command
// too, whatever the agent's own word about it is. The turn after each is as any
// other.
func TestARunIsCancelled(t *testing.T) {
	each(t, every, func(t *testing.T, w *world, a agent) {
		c := w.talk(t, a, "")
		run := c.begin(t, ">>repeat 20 going\n>>sleep 60000\n>>say never")
		c.sees(t, run.RunID, "text", func(e apiclient.Event) bool { return e.Type == "text.delta" })
		r := c.cancel(t, run)
		if said := r.text(t); !strings.HasPrefix(said, "going") || strings.Contains(said, "never") {
			t.Errorf("it said %q", said)
		}

		started := "started-" + rand.Text()
		message := ">>bash touch /workspace/" + started + "; sleep 60; touch /workspace/late"
		if a.asks {
			run = c.resume(t, c.ask(t, message, a.shell()), approve)
		} else {
			run = c.begin(t, message)
		}
		c.sees(t, run.RunID, "run.started", func(e apiclient.Event) bool { return e.Type == "run.started" })
		file := c.inWorkspace(t, run.BindingID, started)
		c.meanwhile(t, run, "the command", func() (bool, error) {
			_, err := os.Stat(file)
			return err == nil, err
		})
		r = c.cancel(t, run)
		for _, call := range r.calls(t) {
			if call.how != "tool.error" {
				t.Errorf("the call did not end as an error: %s", r)
			}
		}
		if _, err := os.Stat(c.inWorkspace(t, run.BindingID, "late")); !os.IsNotExist(err) {
			t.Errorf("the command went on: %v", err)
		}
		c.checkGoesOn(t)
	})
}
