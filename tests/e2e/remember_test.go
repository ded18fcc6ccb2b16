package e2e

import (
	"context"
	"strings"
	"testing"
)

// The one thing that everything else is for: an agent reads what nobody could
// guess, its worker and the model are killed, and a new worker still knows it,
// from committed state and nothing else.
func TestANewWorkerKnowsWhatTheOldOneRead(t *testing.T) { theStack(t).remembers(t) }

func (w *world) remembers(t *testing.T) {
	t.Helper()
	c := w.talk()
	name, line := w.sample(t)

	first := c.tell(t, read(name))
	finished := first.of("tool.finished")
	if len(finished) != 1 || !strings.Contains(string(finished[0].Data), line) {
		t.Errorf("the result of the tool lacks the line: %s", first)
	}
	if !strings.Contains(first.text(t), line) {
		t.Errorf("the agent did not say the line: %q", first.text(t))
	}

	before := c.binding(t, first.BindingID)
	if before.Generation != 1 || before.Epoch != first.Epoch {
		t.Fatalf("the first lease is %+v", before)
	}
	kill(t, c.worker(t, first.BindingID))
	back := w.killProgram(t, "modelproxy")
	// Nobody asks for anything now: the control plane has to see it by itself.
	until(t, "generation 2", func(ctx context.Context) (bool, error) {
		b, err := w.operator.Binding(ctx, first.BindingID)
		return err == nil && b.Generation == 2 && b.Ending == 0, err
	})
	back()

	second := c.tell(t, "What do you remember?")
	if second.BindingID != first.BindingID || second.Epoch != first.Epoch {
		t.Errorf("turn 2 is in binding %s, epoch %d; turn 1 was in %s, %d", second.BindingID, second.Epoch, first.BindingID, first.Epoch)
	}
	if run := c.ended(t, second); run.Generation != 2 || run.DurableRevision != 2 || run.SideEffects != "none" {
		t.Errorf("turn 2: %+v", run)
	}
	if !strings.Contains(second.text(t), line) {
		t.Errorf("the agent has forgotten the line: %q", second.text(t))
	}
	if len(second.of("tool.started")) > 0 {
		t.Errorf("it read the file again: %s", second)
	}
	if after := c.binding(t, first.BindingID); after.Sandbox == nil || after.Sandbox.InstanceUID == before.Sandbox.InstanceUID || after.Sandbox.SPIFFEID == before.Sandbox.SPIFFEID {
		t.Errorf("the sandbox was %+v and is %+v", before.Sandbox, after.Sandbox)
	}
}
