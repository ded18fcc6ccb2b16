//go:build cluster

package installation

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"cofferdam.dev/pkg/capability"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/internal/procs"
)

const (
	granted = impostor.Granted
	stale   = "stale_lease"
)

// half is a turn that is in the middle of its text for as long as anybody waits.
const half = ">>say half\n>>sleep 60000\n>>say too late"

// withFile begins a run that a file comes with, so that its worker has a capability for the file broker.
func withFile(t *testing.T, c *installation.Talk, message string) apiclient.Started {
	t.Helper()
	c.Files = []apiclient.File{{Name: "note.txt", MIMEType: "text/plain", Data: []byte("a note")}}
	run := c.Begin(t, message)
	c.Files = nil
	return run
}

// A pod is deleted while its worker is in the middle of a text. The run ends as docs/protocol.md says, and whoever
// has the identity and the capabilities of its worker gets nothing more from any broker; the next turn
// is in another sandbox, which the same calls of the old one do not disturb.
func TestAPodIsDeletedInText(t *testing.T) {
	i := installation.Shared(t, config)
	neighbour := i.Talk(t, installation.Agent)
	next := i.Seat(t, neighbour.Tell(t, "hello").BindingID)
	c := i.Talk(t, installation.Agent)
	c.Tell(t, "a first turn")
	run := withFile(t, c, half)
	c.Sees(t, run, "text.delta")
	before := i.Seat(t, run.BindingID)
	held := i.Hold(t, run, next)
	lawful(t, held, reads)

	i.DeletePod(t, before)
	r := c.End(t, run)
	ofTurn(t, "in text").check(t, c, r, before)
	outOfService(t, i, held, c, r)

	after := c.Tell(t, "What do you remember?")
	replaced(t, i, before, after.BindingID)
	outOfService(t, i, held, c, r)
}

// A worker is frozen in the middle of a text, taken for lost and replaced, and wakes up then. Whatever it still says and
// does comes to nothing: the log of its run stays as it is, no broker grants it anything, and the conversation goes on in
// another sandbox, from what was committed.
func TestAFrozenWorkerWakesUp(t *testing.T) {
	i := installation.Shared(t, config)
	neighbour := i.Talk(t, installation.Agent)
	next := i.Seat(t, neighbour.Tell(t, "hello").BindingID)
	c := i.Talk(t, installation.Agent)
	c.Tell(t, "a first turn")
	const late = "words of the dead"
	run := withFile(t, c, ">>say half\n>>sleep 15000\n>>say "+late)
	c.Sees(t, run, "text.delta")
	before := i.Seat(t, run.BindingID)
	held := i.Hold(t, run, next)
	lawful(t, held, reads)

	wake := freeze(t, installation.Process(t, before.Pod, "worker"))
	if _, err := c.User.Cancel(t.Context(), run.RunID); err != nil {
		t.Fatal(err)
	}
	r := c.End(t, run)
	if r.Ending() != "run.cancelled client_request" {
		t.Errorf("ended as %s", r)
	}
	wake()
	outOfService(t, i, held, c, r)

	after := c.Tell(t, "What do you remember?")
	if strings.Contains(after.String(), late) {
		t.Errorf("what a worker said that was replaced came into the thread: %s", after)
	}
	replaced(t, i, before, after.BindingID)
	outOfService(t, i, held, c, r)
}

// freeze stops a process. It goes on at the end of the test at the latest.
func freeze(t *testing.T, p procs.Process) (wake func()) {
	t.Helper()
	if err := syscall.Kill(p.PID, syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze %s: %v", p, err)
	}
	wake = func() { _ = syscall.Kill(p.PID, syscall.SIGCONT) } // it may have been killed
	t.Cleanup(wake)
	return wake
}

// A pod is deleted while a tool is called. The call goes on, its outcome may have effects, and is
// not made again.
func TestAPodIsDeletedInATool(t *testing.T) {
	i := installation.Shared(t, config)
	neighbour := i.Talk(t, installation.Agent)
	next := i.Seat(t, neighbour.Tell(t, "hello").BindingID)
	c, name := i.Talk(t, installation.Agent), "tool-"+rand.Text()
	run := withFile(t, c, installation.Pass(name))
	c.Calls(t, run, name)
	before := i.Seat(t, run.BindingID)
	held := i.Hold(t, run, next)
	lawful(t, held, reads, map[string]capability.Audience{"toolbroker call": capability.ToolBroker, "statefacade put": capability.Memory})

	i.DeletePod(t, before)
	r := c.End(t, run)
	if err := i.Gate.Open(name); err != nil { // whoever calls again gets through
		t.Fatal(err)
	}
	p := ofTurn(t, "after the side effect of a tool")
	p.check(t, c, r, before)
	outOfService(t, i, held, c, r)

	after := c.Tell(t, "What do you remember?")
	replaced(t, i, before, after.BindingID)
	calledOnly(t, i, name, p.calls)
}

// A pod is deleted while a person thinks about a call. The decision is carried out in another one, once,
// and neither another decision nor one on an earlier question changes anything.
func TestAPodIsDeletedWhileAPersonThinks(t *testing.T) {
	i := installation.Shared(t, config)
	c, name := i.Talk(t, installation.Careful), "person-"+rand.Text()
	run := c.Begin(t, installation.Pass(name))
	r := c.End(t, run)
	p := promised(t, "question", "while a person thinks")
	before := i.Seat(t, run.BindingID)
	pending := c.Pending(t)
	i.DeletePod(t, before)
	p.check(t, c, r, before)
	calledOnly(t, i, name, p.calls)

	if err := i.Gate.Open(name); err != nil {
		t.Fatal(err)
	}
	second, err := c.Decide(t.Context(), run, pending, "approve")
	if err != nil {
		t.Fatal(err)
	}
	if end := c.End(t, second); end.Ending() != "run.finished" {
		t.Fatalf("the decision was not carried out: %s", end)
	}
	replaced(t, i, before, run.BindingID)
	if again, err := c.Decide(t.Context(), run, pending, "approve"); err != nil || again.RunID != second.RunID {
		t.Errorf("the same decision again: %+v, %v; it was carried out by %s", again, err, second.RunID)
	}
	if _, err := c.Decide(t.Context(), run, pending, "reject"); apiclient.CodeOf(err) != "interrupt_conflict" {
		t.Errorf("another decision: %v", err)
	}
	calledOnly(t, i, name, 1)

	third := c.Begin(t, installation.Pass(name))
	if r := c.End(t, third); r.Ending() != "run.interrupted" {
		t.Fatalf("not asked again: %s", r)
	}
	old := c.Pending(t)
	c.Clear(t)
	if _, err := c.Decide(t.Context(), third, old, "approve"); apiclient.CodeOf(err) != "interrupt_not_found" {
		t.Errorf("a decision on a question of an epoch that was cleared: %v", err)
	}
	calledOnly(t, i, name, 1)
}

// The control plane is killed in the middle of a run. The next one ends the run and gives the conversation another sandbox: the old
// worker, which nobody has told, gets nothing more. A conversation that rested keeps its own.
func TestTheControlPlaneIsKilledInARun(t *testing.T) {
	i := installation.Shared(t, config)
	neighbour := i.Talk(t, installation.Agent)
	next := i.Seat(t, neighbour.Tell(t, "hello").BindingID)
	c := i.Talk(t, installation.Agent)
	run := withFile(t, c, half)
	c.Sees(t, run, "text.delta")
	before := i.Seat(t, run.BindingID)
	held := i.Hold(t, run, next)
	lawful(t, held, reads)

	i.Kill(t, "controlplane")
	c.User = i.User(t)
	r := c.End(t, run)
	promise{"run.error control_plane_lost", "none", 0}.check(t, c, r, before)
	outOfService(t, i, held, c, r)
	after := c.Tell(t, "What do you remember?")
	replaced(t, i, before, after.BindingID)
	outOfService(t, i, held, c, r)

	neighbour.User = c.User
	if s := i.Seat(t, neighbour.Tell(t, "again").BindingID); s.Pod.UID != next.Pod.UID || s.Generation != next.Generation {
		t.Errorf("a conversation that rested was in pod %s of generation %d and is in %s of %d", next.Pod.UID, next.Generation, s.Pod.UID, s.Generation)
	}
}

// The pod of the control plane is deleted in the middle of a run, which it ends by itself. The conversation
// goes on in its sandbox, where nothing is left of what that run might do.
func TestTheControlPlanesPodIsDeletedInARun(t *testing.T) {
	i := installation.Shared(t, config)
	neighbour := i.Talk(t, installation.Agent)
	next := i.Seat(t, neighbour.Tell(t, "hello").BindingID)
	c := i.Talk(t, installation.Agent)
	run := withFile(t, c, half)
	c.Sees(t, run, "text.delta")
	before := i.Seat(t, run.BindingID)
	held := i.Hold(t, run, next)
	lawful(t, held, reads)

	i.Restart(t, "controlplane")
	c.User, neighbour.User = i.User(t), i.User(t)
	r := c.End(t, run)
	promise{"run.cancelled shutdown", "none", 0}.check(t, c, r, before)
	outOfService(t, i, held, c, r)
	if s := i.Seat(t, c.Tell(t, "What do you remember?").BindingID); s.Pod.UID != before.Pod.UID || s.Generation != before.Generation {
		t.Errorf("it was in pod %s of generation %d and is in %s of %d", before.Pod.UID, before.Generation, s.Pod.UID, s.Generation)
	}
	outOfService(t, i, held, c, r)
}

// While no node takes pods, turns are served from what is warm, then refused as
// sandbox_capacity; conversations that have a sandbox go on; and when the node is back so is everything.
func TestTheOnlyNodeIsCordoned(t *testing.T) {
	i := installation.Shared(t, config)
	had := i.Talk(t, installation.Agent)
	before := i.Seat(t, had.Tell(t, "hello").BindingID)
	cordon(t, i, true)
	t.Cleanup(func() { cordon(t, i, false) })
	const most = 8 // more than the pool has
	for _, agent := range []string{installation.Warm, installation.Agent} {
		refused := false
		for range most {
			c := i.Talk(t, agent)
			r, err := talk{c}.tell(t, "hello")
			if err == nil {
				continue
			}
			if refused = capacity(r, err); !refused {
				t.Errorf("%s: %v", agent, err)
			} else if seconds := retryAfter(r, err); seconds <= 0 {
				t.Errorf("%s: refused without a time to come again: %v", agent, err)
			}
			break
		}
		if !refused {
			t.Errorf("%s: %d new conversations at once on no node, and none refused", agent, most)
		}
	}
	had.Tell(t, "again")
	if s := i.Seat(t, had.BindingID()); s.Pod.UID != before.Pod.UID {
		t.Error("a conversation with a sandbox was given another one")
	}
	cordon(t, i, false)
	c := i.Talk(t, installation.Agent)
	installation.Until(t, "a turn when the node is back", func() (bool, error) {
		_, err := talk{c}.tell(t, "hello")
		return err == nil, err
	})
}

// While the controller of sandboxes does not run, conversations that have one go on, and new ones are refused as
// sandbox_not_ready, after as many claims as a run may use up; when it is back so is everything, and nothing is left
// of those claims.
func TestTheSandboxControllerIsDown(t *testing.T) {
	i := installation.Shared(t, config)
	had := i.Talk(t, installation.Agent)
	before := i.Seat(t, had.Tell(t, "hello").BindingID)
	others, err := claimsOf(t.Context(), i)
	if err != nil {
		t.Fatal(err)
	}
	i.Cluster.Stop(t, "sandbox-controller")
	c := i.Talk(t, installation.Agent)
	run := c.Begin(t, "hello")
	for range 3 {
		had.Tell(t, "again")
	}
	if s := i.Seat(t, had.BindingID()); s.Pod.UID != before.Pod.UID {
		t.Error("a conversation with a sandbox was given another one")
	}
	if r := c.End(t, run); r.Ending() != "run.error sandbox_not_ready" {
		t.Errorf("a new conversation without a controller: %s", r)
	}
	i.Cluster.Start(t, "sandbox-controller")
	installation.Until(t, "a turn when the controller is back", func() (bool, error) {
		_, err := talk{c}.tell(t, "hello")
		return err == nil, err
	})
	seat := i.Seat(t, run.BindingID)
	kube.Eventually(t, "the end of the claims that nobody answered", func(ctx context.Context) error {
		claims, err := claimsOf(ctx, i)
		for uid, name := range claims {
			if _, was := others[uid]; !was && uid != seat.Claim {
				err = errors.Join(err, fmt.Errorf("claim %s is there", name))
			}
		}
		return err
	})
}

// claimsOf are the names of all claims that there are. Other tests may have left conversations that rest.
func claimsOf(ctx context.Context, i *installation.Installation) (map[types.UID]string, error) {
	list, err := i.Cluster.Dynamic.Resource(kube.Claims).Namespace(installation.Sandboxes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	names := map[types.UID]string{}
	for _, claim := range list.Items {
		names[claim.GetUID()] = claim.GetName()
	}
	return names, nil
}

func cordon(t *testing.T, i *installation.Installation, on bool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	nodes, err := i.Cluster.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range nodes.Items {
		_, err := i.Cluster.Client.CoreV1().Nodes().Patch(ctx, nodes.Items[n].Name, types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, on), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// replaced sees that a binding has another claim, sandbox and pod, of the next generation, and that nothing of the old ones is left.
func replaced(t *testing.T, i *installation.Installation, before installation.Seat, binding string) {
	t.Helper()
	now := i.Seat(t, binding)
	if now.Claim == before.Claim || now.Sandbox == before.Sandbox || now.Pod.UID == before.Pod.UID || now.Generation <= before.Generation {
		t.Errorf("claim %s, sandbox %s, pod %s, generation %d came after %s, %s, %s, %d",
			now.Claim, now.Sandbox, now.Pod.UID, now.Generation, before.Claim, before.Sandbox, before.Pod.UID, before.Generation)
	}
	i.Gone(t, before)
}

// calledOnly sees how often the tool was called under a name.
func calledOnly(t *testing.T, i *installation.Installation, name string, want int) {
	t.Helper()
	if n, err := i.Gate.Calls(name); err != nil || n != want {
		t.Errorf("the tool was called %d times as %s, want %d (%v)", n, name, want, err)
	}
}

// What a worker asks its brokers for, by the capability that it takes. Reads have no effect on what comes of the run, writes do.
var (
	reads = map[string]capability.Audience{
		"statefacade load": capability.ThreadState, "statefacade write": capability.ThreadState, "statefacade remember": capability.Memory,
		"model": capability.ModelProxy, "filebroker download": capability.FileBroker,
	}
	writes = map[string]capability.Audience{
		"toolbroker call": capability.ToolBroker, "statefacade put": capability.Memory, "statefacade commit": capability.ThreadState,
	}
)

// calls are those of the given kinds, in the name of a worker.
func calls(h *installation.Held, kinds ...map[string]capability.Audience) []impostor.Call {
	var all []impostor.Call
	for _, kind := range kinds {
		for what, audience := range kind {
			call := impostor.Call{What: what, Token: h.Tokens[audience], Envelope: h.Envelope, Adapter: h.Adapter}
			call.Envelope.IdempotencyKey = "held-" + rand.Text()
			if what == "statefacade put" {
				call.Record = &impostor.Record{Scope: memoryv1.Scope_SCOPE_USER, Key: call.Envelope.IdempotencyKey, Content: "x"}
			}
			if len(h.Handles) > 0 {
				call.Handle = h.Handles[0]
			}
			all = append(all, call)
		}
	}
	return all
}

// lawful sees that calls are granted to whoever has what a worker has, while that is the worker.
func lawful(t *testing.T, h *installation.Held, kinds ...map[string]capability.Audience) {
	t.Helper()
	for what, got := range h.Try(t, calls(h, kinds...)...) {
		if got != granted {
			t.Errorf("%s was not even granted to the current worker, but %s: a refusal means nothing", what, got)
		}
	}
}

// outOfService sees that nothing is granted to a worker that has been replaced, every refusal naming the lease, and that its
// run is as it was.
func outOfService(t *testing.T, i *installation.Installation, h *installation.Held, c *installation.Talk, r installation.Turn) {
	t.Helper()
	c.Concluded(t, r.Started)
	got := h.Try(t, calls(h, reads, writes)...)
	for _, what := range slices.Sorted(maps.Keys(got)) {
		if got[what] != stale {
			t.Errorf("%s of a stale worker came to %q", what, got[what])
		}
	}
	b, err := i.Operator(t).Binding(t.Context(), r.BindingID)
	if err != nil {
		t.Fatal(err)
	}
	again := c.End(t, r.Started)
	if len(again.Events) != len(r.Events) || string(again.Last().Raw) != string(r.Last().Raw) {
		t.Errorf("the log of a run that was over had %d events and has %d: %s", len(r.Events), len(again.Events), again)
	}
	t.Logf("refused to the worker of generation %d, where %d stands: %v", h.Envelope.Generation, b.Generation, slices.Sorted(maps.Keys(got)))
}
