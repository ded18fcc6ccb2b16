package agents

import (
	"slices"
	"strings"
	"testing"
)

// Several agents end a turn in order whose model has failed, with the error as
// their answer or with no answer at all. The outcome of a run is what happened:
// never a success, and the next turn works.
func TestAModelThatRefusesFailsTheRun(t *testing.T) {
	each(t, every, func(t *testing.T, w *world, a agent) {
		c := w.talk(t, a, "")
		r := c.say(t, ">>error 400")
		if code := r.failure(t); code != "model_failed" {
			t.Errorf("failed by %s: %s", code, r)
		}
		c.checkEmpty(t, r.BindingID)
		c.checkGoesOn(t)
	})
}

func TestAnAnswerThatIsCutFailsTheRun(t *testing.T) {
	each(t, every, func(t *testing.T, w *world, a agent) {
		// Agents try again for up to a minute, so both cuts are waited for at once.
		reset, truncated := w.talk(t, a, ""), w.talk(t, a, "")
		first := reset.begin(t, ">>say the first half\n>>reset")
		second := truncated.begin(t, ">>say the first half\n>>truncate")
		for _, c := range []struct {
			*talk

			r turn
		}{{reset, reset.end(t, first)}, {truncated, truncated.end(t, second)}} {
			if code := c.r.failure(t); !slices.Contains([]string{"model_failed", "model_unavailable"}, code) {
				t.Errorf("failed by %s: %s", code, c.r)
			}
			if said := c.r.text(t); !strings.Contains(said, "the first half") {
				t.Errorf("what was said before the cut is missing: %q", said)
			}
			c.checkEmpty(t, c.r.BindingID)
			c.checkGoesOn(t)
		}
	})
}

func (c *talk) checkGoesOn(t *testing.T) {
	t.Helper()
	if said := c.tell(t, ">>say it works").text(t); said != "it works" {
		t.Errorf("the next turn said %q", said)
	}
}
