package e2e

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/gate"
)

// called waits until the gate was called under a name.
func (w *world) called(t *testing.T, name string) {
	t.Helper()
	until(t, "a call of the gate", func(context.Context) (bool, error) {
		n, err := w.gate.Calls(name)
		return n > 0, err
	})
}

// The server of the tool gets its credential from the broker.
func TestAToolGetsACredentialThatTheWorkerNeverHas(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	r := w.talk().tell(t, ">>call gate.fingerprint {}")
	if !strings.Contains(r.text(t), gate.Fingerprint(toolCredential)) {
		t.Errorf("the tool has another credential: %s", r)
	}
}

func TestAToolIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c := w.talk()
	name := "w-" + rand.Text()
	run := c.begin(t, `>>call gate.pass {"name":"`+name+`"}`)
	w.called(t, name)
	if err := w.gate.Open(name); err != nil {
		t.Fatal(err)
	}
	r := c.end(t, run)
	r.finished(t)
	if text := r.text(t); !strings.Contains(text, "passed "+name) {
		t.Errorf("it said %q", text)
	}
	if n, err := w.gate.Calls(name); err != nil || n != 1 {
		t.Errorf("called %d times, %v", n, err)
	}
}
