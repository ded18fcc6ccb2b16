package escape

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/isolation"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
)

func sumOfX() []byte {
	sum := sha256.Sum256([]byte("x"))
	return sum[:]
}

// captured is a binding in the middle of a run, with all that can be taken from the
// memory of its worker.
type captured struct {
	worker   procs.Process
	user     int
	binding  apiclient.Binding
	envelope fence.Envelope
	// tokens of the run, by audience.
	tokens map[capability.Audience]string
}

// capture looks into a worker as only the host can.
func (c *talk) capture(t *testing.T, run apiclient.Started) captured {
	t.Helper()
	b, err := c.w.operator.Binding(t.Context(), run.BindingID)
	if err != nil || b.Sandbox == nil {
		t.Fatalf("%+v, %v", b, err)
	}
	got := captured{worker: c.worker(t, run.BindingID), binding: b, tokens: map[capability.Audience]string{}, envelope: fence.Envelope{
		BindingID: run.BindingID, Epoch: run.Epoch, Generation: b.Generation, RunID: run.RunID, RequestID: "req-impostor", IdempotencyKey: "key-impostor",
	}}
	if got.user, err = userOf(got.worker); err != nil {
		t.Fatal(err)
	}
	const longest = 8 << 10
	err = procs.Memory(got.worker.PID, longest, func(part []byte) {
		for _, token := range tokens.FindAll(part, -1) {
			audience, of := claims(token)
			if of == run.RunID {
				got.tokens[audience] = string(token)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, audience := range []capability.Audience{capability.ThreadState, capability.Memory, capability.ModelProxy} {
		if got.tokens[audience] == "" {
			t.Fatalf("the memory of worker %d has no token for %s, so that nothing is shown", got.worker.PID, audience)
		}
	}
	return got
}

// tokens matches a compact JWS whose signature has 64 bytes, as those of capabilities
// have: what stands behind it in memory may be anything.
var tokens = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{86}`)

// claims are what a token says, without a look at its signature.
func claims(token []byte) (audience capability.Audience, run string) {
	parts := bytes.Split(token, []byte("."))
	raw, err := base64.RawURLEncoding.DecodeString(string(parts[1]))
	if err != nil {
		return "", ""
	}
	var c struct {
		Audience capability.Audience `json:"aud"`
		RunID    string              `json:"run_id"`
	}
	if json.Unmarshal(raw, &c) != nil {
		return "", ""
	}
	return c.Audience, c.RunID
}

// pretends lets an impostor of a worker make calls, as a user of the host.
func (c captured) pretends(t *testing.T, user int, other captured, data string, calls ...call) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, impostorArgument)
	p := pretence{User: user, ID: c.binding.Sandbox.SPIFFEID, Calls: calls}
	for _, name := range []string{"workload", "capability", "toolbroker", "statefacade", "filebroker", "modelproxy", "worker"} {
		path := insideOf(c.worker, "run", "cofferdam", name+".sock")
		if name == "worker" {
			uid := other.binding.Sandbox.InstanceUID
			name, path = name+"/"+uid, socketOf(data, uid)
		}
		file, err := pathOnly(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		p.Sockets, cmd.ExtraFiles = append(p.Sockets, name), append(cmd.ExtraFiles, file)
	}
	var said, complained bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(encode(t, p)), &said, &complained
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, complained.String())
	}
	var out []string
	decode(t, said.Bytes(), &out)
	return out
}

// socketOf is where the worker of an instance listens, for the control plane.
func socketOf(data, uid string) string {
	const named = 16
	return filepath.Join(data, "run", "w", strings.ToLower(uid[:named])+".sock")
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
		{"mint", call{"capability mint", own.tokens[capability.ThreadState], theirs.envelope}, "caller_not_allowed"},
		// TLS ends it: the other worker listens to the control plane alone.
		{"call the other worker", call{"worker ready", "", theirs.envelope}, "dependency_unavailable"},
	}
	var lawful []call
	for what, audience := range audiences {
		attempts = append(attempts, attemptsOn(what, audience, own, theirs)...)
		if audience != capability.FileBroker { // in a run without files there is no token for it
			lawful = append(lawful, call{what, own.tokens[audience], own.envelope})
		}
	}
	calls := make([]call, len(attempts))
	for i, a := range attempts {
		calls[i] = a.call
	}
	for i, said := range own.pretends(t, own.user, theirs, w.Data, calls...) {
		if a := attempts[i]; said != a.refused {
			t.Errorf("%s %s: %s, want %s", a.What, a.how, said, a.refused)
		}
	}
	// Last, since it does what it is meant to.
	for i, said := range own.pretends(t, own.user, theirs, w.Data, lawful...) {
		if said != granted {
			t.Errorf("%s with all that it takes: %s, so that a refusal means nothing", lawful[i].What, said)
		}
	}
}

// attempt is a call that has to be refused with a code.
type attempt struct {
	how string
	call

	refused string
}

func attemptsOn(what string, audience capability.Audience, own, theirs captured) []attempt {
	another := own.tokens[capability.ThreadState]
	if audience == capability.ThreadState {
		another = own.tokens[capability.Memory]
	}
	attempts := []attempt{
		{"without a token", call{what, "", own.envelope}, "capability_missing"},
		{"without a token, for the other's run", call{what, "", theirs.envelope}, "capability_missing"},
		{"with a token that is none", call{what, "eyJhbGciOiJub25lIn0.e30.", own.envelope}, "capability_invalid"},
		{"with a token for something else", call{what, another, own.envelope}, "audience_mismatch"},
	}
	if audience == capability.FileBroker {
		return attempts
	}
	return append(attempts,
		attempt{"with the other's token, for the other's run", call{what, theirs.tokens[audience], theirs.envelope}, "capability_invalid"},
		attempt{"with the other's token, for its own run", call{what, theirs.tokens[audience], own.envelope}, "capability_invalid"},
		attempt{"with its own token, for the other's run", call{what, own.tokens[audience], theirs.envelope}, "capability_scope"})
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

	first := own.user - isolation.WorkerID
	load := call{"statefacade write", own.tokens[capability.ThreadState], own.envelope}
	var all sync.WaitGroup
	for user, want := range map[int]string{
		own.user: granted, first + isolation.RunnerID: noIdentity, first + isolation.AgentID: noIdentity, first: noIdentity, theirs.user: noIdentity,
		isolation.AgentInside: noIdentity,
	} {
		all.Go(func() {
			if got := own.pretends(t, user, theirs, w.Data, load); got[0] != want {
				t.Errorf("user %d (the worker is %d) gets %v, want %s", user, own.user, got, want)
			}
		})
	}
	all.Wait()
}
