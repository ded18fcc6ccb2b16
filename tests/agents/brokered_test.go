package agents

import (
	"strings"
	"testing"
)

// A tool of the ToolBroker is called once, its events carry the id of the tool and
// the broker's answer, and the model reads it. All of that is known to another
// worker, after the first was killed, from committed state and nothing else.
func TestABrokeredCallIsRememberedByAnotherWorker(t *testing.T) {
	each(t, every, func(t *testing.T, w *world, a agent) {
		c := w.talk(t, a, "")
		name, line := w.sample(t)
		first := c.tell(t, `>>call fs.read_text_file {"path":"`+name+`"}`)
		calls := first.calls(t)
		if len(calls) != 1 || calls[0].Tool != toolRead || calls[0].how != "tool.finished" || !strings.Contains(string(calls[0].Result), line) {
			t.Fatalf("want one call of %s with the line as its result: %s", toolRead, first)
		}
		if !strings.Contains(string(calls[0].Args), name) {
			t.Errorf("the arguments are %s", calls[0].Args)
		}
		if !strings.Contains(first.text(t), line) {
			t.Errorf("the result did not come to the model: %q", first.text(t))
		}
		before := c.binding(t, first.BindingID)
		c.kill(t, first.BindingID)

		second := c.tell(t, "What do you remember?")
		if said := second.text(t); !strings.Contains(said, line) {
			t.Errorf("the agent has forgotten the line: %q", said)
		}
		if len(second.calls(t)) > 0 {
			t.Errorf("it called something again: %s", second)
		}
		after := c.binding(t, second.BindingID)
		if after.Sandbox == nil || after.Sandbox.InstanceUID == before.Sandbox.InstanceUID || second.BindingID != first.BindingID || second.Epoch != first.Epoch {
			t.Errorf("the same sandbox, or another conversation: %+v, then %+v", before, after)
		}
	})
}
