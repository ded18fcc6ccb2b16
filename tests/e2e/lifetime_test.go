package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/tests/stack"
)

// A sandbox has its time. When that is over between two turns the lease is replaced
// without anybody asking, nothing new is made, and the next turn restores the
// conversation in another sandbox.
func TestAConversationOutlivesTheTimeOfItsSandbox(t *testing.T) {
	t.Parallel()
	command := stack.Need(t)
	profiles := filepath.Join(t.TempDir(), "profiles.json")
	// Many times as long as a turn takes.
	short := `{"profiles":[{"name":"local","harness":"native","limits":{"lifetime_seconds":20}}]}`
	if err := os.WriteFile(profiles, []byte(short), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := open(command, "--sandbox-profiles", profiles)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	c := w.talk()
	mark := word()
	first := c.tell(t, mark)
	until(t, "the lease is replaced", func(ctx context.Context) (bool, error) {
		b, err := w.operator.Binding(ctx, first.BindingID)
		return err == nil && b.Generation == 2 && b.Ending == 0 && b.Sandbox == nil, err
	})
	second := c.tell(t, "What do you remember?")
	if !strings.Contains(second.text(t), mark) || second.finished(t) != first.finished(t)+1 {
		t.Errorf("revision %d after %d: %q", second.finished(t), first.finished(t), second.text(t))
	}
}
