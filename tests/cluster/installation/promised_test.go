//go:build cluster

package installation

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"cofferdam.dev/tests/cluster/internal/installation"
)

// promise is what docs/protocol.md says of a run whose worker dies at a step.
type promise struct {
	ends, effects string
	calls         int
}

func ofTurn(t *testing.T, step string) promise {
	t.Helper()
	return promised(t, "turn", step)
}

// promised reads a row of the table "When a worker dies".
func promised(t *testing.T, run, step string) promise {
	t.Helper()
	raw, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 7 || strings.TrimSpace(cells[0]) != run || strings.TrimSpace(cells[1]) != step {
			continue
		}
		calls, err := strconv.Atoi(strings.TrimSpace(cells[4]))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return promise{strings.TrimSpace(strings.ReplaceAll(cells[2], "`", "")), strings.TrimSpace(cells[3]), calls}
	}
	t.Fatalf("docs/protocol.md does not promise what comes of a %s whose worker dies %s", run, step)
	return promise{}
}

// check compares the end of a run with the promise, in the log and in its status.
func (p promise) check(t *testing.T, c *installation.Talk, r installation.Turn, before installation.Seat) {
	t.Helper()
	if got := r.Ending(); got != p.ends {
		t.Errorf("ended as %s, want %s: %s", got, p.ends, r)
	}
	status := c.Concluded(t, r.Started)
	if status.SideEffects != p.effects || status.Generation != before.Generation {
		t.Errorf("side effects are %s, want %s; of generation %d, want %d", status.SideEffects, p.effects, status.Generation, before.Generation)
	}
}
