package escape

import (
	"syscall"
	"testing"
)

// A sandbox whose runner dies cannot host its program any more. Its run says that it is
// the sandbox's fault, and its conversation goes on in another one.
func TestAConversationOutlivesItsRunner(t *testing.T) {
	needsPython(t)
	w := theStack(t)
	c := w.talk(program)
	run := c.begin(t, encode(t, []attack{{"do": "stay"}}))
	c.sees(t, run, "text.delta")
	runner := w.runner(t, c.worker(t, run.BindingID))
	if err := syscall.Kill(runner.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := c.end(t, run)
	if end := r.ending(t); end != vanished && end != "run.error sandbox_not_ready" {
		t.Errorf("ended as %s: %s", end, r)
	}
	c.tell(t, harmless(program))
}
