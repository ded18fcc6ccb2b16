package escape

import (
	"context"
	"syscall"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
)

// A sandbox whose runner dies cannot host its program any more, and is not used again.
// A run that it dies in says that a part of the sandbox vanished, and what is known of
// its side effects; between two runs the control plane notices by itself. The
// conversation goes on in another sandbox.
func TestAConversationOutlivesItsRunner(t *testing.T) {
	needsPython(t)
	w := theStack(t)
	t.Run("in a run", func(t *testing.T) {
		c := w.talk(program)
		run := c.begin(t, encode(t, []attack{{"do": "stay"}}))
		c.sees(t, run, "text.delta")
		c.killRunner(t, run)
		r := c.end(t, run)
		if end := r.ending(t); end != vanished {
			t.Errorf("ended as %s: %s", end, r)
		}
		var d struct {
			Effects   string `json:"side_effect_status"`
			Retryable bool   `json:"retryable"`
		}
		decode(t, r.last().Data, &d)
		if d.Effects != "none" || d.Retryable {
			t.Errorf("a program that did nothing outside ended as %+v", d)
		}
		c.replaced(t, run)
		c.tell(t, harmless(program))
	})
	t.Run("between two runs", func(t *testing.T) {
		c := w.talk(program)
		first := c.begin(t, harmless(program))
		c.end(t, first)
		c.killRunner(t, first)
		c.replaced(t, first)
		c.tell(t, harmless(program))
	})
}

func (c *talk) killRunner(t *testing.T, run apiclient.Started) {
	t.Helper()
	runner := c.w.runner(t, c.worker(t, run.BindingID))
	if err := syscall.Kill(runner.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// replaced waits until the lease of a binding is the next one.
func (c *talk) replaced(t *testing.T, run apiclient.Started) {
	t.Helper()
	until(t, "the next generation", func(ctx context.Context) (bool, error) {
		b, err := c.w.operator.Binding(ctx, run.BindingID)
		return err == nil && b.Generation >= 2, err
	})
}
