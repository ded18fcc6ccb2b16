package agents

import (
	"slices"
	"testing"
)

// Several agents end a turn in order whose model has failed, with the error as
// their answer or with no answer at all. The outcome of a run is what happened:
// never a success. Nothing of the agent is left, and the next turn is as any other.
func TestAModelThatFailsFailsTheRun(t *testing.T) {
	each(t, every, func(t *testing.T, w *world, a agent) {
		c := w.talk(t, a, "")
		for _, script := range []string{
			">>error 400",
			">>say the first half\n>>reset",
			">>say the first half\n>>truncate",
		} {
			r := c.say(t, script)
			if code := r.failure(t); !slices.Contains([]string{"model_failed", "model_unavailable"}, code) {
				t.Errorf("%q failed by %s: %s", script, code, r)
			}
			c.checkEmpty(t, r.BindingID)
		}
		c.checkGoesOn(t)
	})
}

func (c *talk) checkGoesOn(t *testing.T) {
	t.Helper()
	if said := c.tell(t, ">>say it works").text(t); said != "it works" {
		t.Errorf("the next turn said %q", said)
	}
}
