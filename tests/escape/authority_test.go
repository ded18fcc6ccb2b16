package escape

import (
	"errors"
	"sync"
	"testing"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/isolation"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/impostor"
)

// capture looks into a worker as only the host can.
func (c *talk) capture(t *testing.T, run apiclient.Started) impostor.Captured {
	t.Helper()
	b, err := c.w.operator.Binding(t.Context(), run.BindingID)
	if err != nil {
		t.Fatal(err)
	}
	got, err := impostor.Capture(b, c.worker(t, run.BindingID), run)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// pretends lets an impostor of a worker make calls, as a user of the host.
func pretends(t *testing.T, c impostor.Captured, user int, other impostor.Captured, data string, calls ...impostor.Call) []string {
	t.Helper()
	uid := other.Binding.Sandbox.InstanceUID
	i, err := c.Start(t.Context(), user, map[string]string{"worker/" + uid: impostor.SocketOf(data, uid)})
	if err != nil {
		t.Fatal(err)
	}
	said, err := i.Make(calls...)
	if err := errors.Join(err, i.Close()); err != nil {
		t.Fatal(err)
	}
	return said
}

// A worker that was wholly taken over, and that even got hold of what another one
// has in its memory, can do nothing in the other's name: not without a token, not
// with the other's, not with its own for the other's run, and not with one that is
// for something else.
func TestTheAuthorityOfAnotherBindingIsWorthNothing(t *testing.T) {
	w := theStack(t)
	v := w.victim(t)
	theirs := v.capture(t, v.run)
	c := w.talk(script)
	run := c.begin(t, plays(t, step{"do": "text", "text": whileItGoes}, step{"do": "delay", "ms": 60_000}))
	c.sees(t, run, "text.delta")
	own := c.capture(t, run)
	defer c.cancel(t, run)

	audiences := map[string]capability.Audience{
		"statefacade load": capability.ThreadState, "statefacade write": capability.ThreadState, "statefacade remember": capability.Memory,
		"toolbroker call": capability.ToolBroker, "model": capability.ModelProxy, "filebroker download": capability.FileBroker,
	}
	attempts := []attempt{
		{"mint", impostor.Call{What: "capability mint", Token: own.Tokens[capability.ThreadState], Envelope: theirs.Envelope}, "caller_not_allowed"},
		// TLS ends it: the other worker listens to the control plane alone.
		{"call the other worker", impostor.Call{What: "worker ready", Token: "", Envelope: theirs.Envelope}, "dependency_unavailable"},
	}
	var lawful []impostor.Call
	for what, audience := range audiences {
		attempts = append(attempts, attemptsOn(what, audience, own, theirs)...)
		if audience != capability.FileBroker { // in a run without files there is no token for it
			lawful = append(lawful, impostor.Call{What: what, Token: own.Tokens[audience], Envelope: own.Envelope})
		}
	}
	calls := make([]impostor.Call, len(attempts))
	for i, a := range attempts {
		calls[i] = a.Call
	}
	for i, said := range pretends(t, own, own.User, theirs, w.Data, calls...) {
		if a := attempts[i]; said != a.refused {
			t.Errorf("%s %s: %s, want %s", a.What, a.how, said, a.refused)
		}
	}
	// Last, since it does what it is meant to.
	for i, said := range pretends(t, own, own.User, theirs, w.Data, lawful...) {
		if said != impostor.Granted {
			t.Errorf("%s with all that it takes: %s, so that a refusal means nothing", lawful[i].What, said)
		}
	}
}

// attempt is a call that has to be refused with a code.
type attempt struct {
	how string
	impostor.Call

	refused string
}

func attemptsOn(what string, audience capability.Audience, own, theirs impostor.Captured) []attempt {
	another := own.Tokens[capability.ThreadState]
	if audience == capability.ThreadState {
		another = own.Tokens[capability.Memory]
	}
	attempts := []attempt{
		{"without a token", impostor.Call{What: what, Token: "", Envelope: own.Envelope}, "capability_missing"},
		{"without a token, for the other's run", impostor.Call{What: what, Token: "", Envelope: theirs.Envelope}, "capability_missing"},
		{"with a token that is none", impostor.Call{What: what, Token: "eyJhbGciOiJub25lIn0.e30.", Envelope: own.Envelope}, "capability_invalid"}, //nolint:gosec // not even signed
		{"with a token for something else", impostor.Call{What: what, Token: another, Envelope: own.Envelope}, "audience_mismatch"},
	}
	if audience == capability.FileBroker {
		return attempts
	}
	return append(attempts,
		attempt{"with the other's token, for the other's run", impostor.Call{What: what, Token: theirs.Tokens[audience], Envelope: theirs.Envelope}, "capability_invalid"},
		attempt{"with the other's token, for its own run", impostor.Call{What: what, Token: theirs.Tokens[audience], Envelope: own.Envelope}, "capability_invalid"},
		attempt{"with its own token, for the other's run", impostor.Call{What: what, Token: own.Tokens[audience], Envelope: theirs.Envelope}, "capability_scope"})
}

// The Workload API of a sandbox answers its worker and nobody else of the machine,
// also where somebody gets hold of its socket: not the runner, not the program, and
// not the worker of another sandbox.
func TestAnIdentityIsForItsWorkerAlone(t *testing.T) {
	needsPython(t)
	w := theStack(t)
	c := w.talk(program)
	run := c.begin(t, encode(t, []attack{{"do": "stay"}}))
	c.sees(t, run, "text.delta")
	own := c.capture(t, run)
	defer c.cancel(t, run)
	v := w.victim(t)
	theirs := v.capture(t, v.run)

	first := own.User - isolation.WorkerID
	load := impostor.Call{What: "statefacade write", Token: own.Tokens[capability.ThreadState], Envelope: own.Envelope}
	var all sync.WaitGroup
	for user, want := range map[int]string{
		own.User: impostor.Granted, first + isolation.RunnerID: impostor.NoIdentity, first + isolation.AgentID: impostor.NoIdentity, first: impostor.NoIdentity, theirs.User: impostor.NoIdentity,
		isolation.AgentInside: impostor.NoIdentity,
	} {
		all.Go(func() {
			if got := pretends(t, own, user, theirs, w.Data, load); got[0] != want {
				t.Errorf("user %d (the worker is %d) gets %v, want %s", user, own.User, got, want)
			}
		})
	}
	all.Wait()
}
