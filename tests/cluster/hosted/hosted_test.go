//go:build cluster

package hosted

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
)

// An agent of the tests, by the name of its profile.
type agent struct {
	profile string
	// call has it make a brokered call and tell what came back; busy has it say something and then do nothing for minutes;
	// recall has it say what it remembers.
	call, busy, recall string
}

// script is what lineprogram is told to do.
func script(steps ...map[string]any) string {
	text, _ := json.Marshal(steps) // they are made of JSON
	return string(text)
}

func step(do string, fields map[string]any) map[string]any {
	out := map[string]any{"do": do}
	maps.Copy(out, fields)
	return out
}

func agents() []agent {
	call := map[string]any{"tool": "fs.read_text_file", "args": map[string]any{"path": sample}}
	return []agent{
		{
			"stdio", script(step("parallel", map[string]any{"branches": [][]any{{call}}})),
			script(step("text", map[string]any{"text": "working"}), step("delay", map[string]any{"ms": 300_000})),
			script(step("recall", nil)),
		},
		{"acp", installation.Read(sample), ">>say working" + strings.Repeat("\n>>sleep 60000", 5), "What do you remember?"},
	}
}

// A file of the sample folder, and what it says.
const sample, noted = "notes.txt", "north valve"

// A turn of a program in a second container of the pod calls a tool of the ToolBroker through its worker. When the
// container is killed in the next one, that ends as a sandbox that went away, and the conversation goes on in another pod
// from committed state.
func TestAHostedAgentWorksAndDies(t *testing.T) {
	i := installation.Shared(t, config(t))
	for _, a := range agents() {
		t.Run(a.profile, func(t *testing.T) {
			c := i.Talk(t, a.profile)
			first := c.Tell(t, a.call)
			if !slices.ContainsFunc(first.Events, isType("tool.finished")) || !strings.Contains(first.Text(), noted) {
				t.Fatalf("the call's result did not come to the program: %s", first)
			}
			seat := i.Seat(t, first.BindingID)
			busy := c.Begin(t, a.busy)
			c.Sees(t, busy, "text.delta")
			if kube.RuntimeClass() == "" { // a node sees no process of a sandbox of gVisor's
				apart(t, i, seat.Pod)
			}
			kill(t, i, seat.Pod, "agent")
			if got := c.End(t, busy).Ending(); got != "run.error sandbox_evicted" {
				t.Errorf("a run whose agent was killed ended by %s", got)
			}
			next := c.Tell(t, a.recall)
			if !strings.Contains(next.Text(), noted) {
				t.Errorf("it does not remember what was committed: %s", next)
			}
			after := i.Seat(t, first.BindingID)
			if after.Pod.UID == seat.Pod.UID || after.Claim == seat.Claim || after.Generation <= seat.Generation {
				t.Errorf("generation %d with pod %s, then %d with %s", seat.Generation, seat.Pod.UID, after.Generation, after.Pod.UID)
			}
			i.Gone(t, seat)
		})
	}
}

// apart looks from the node at the processes of both containers while the program runs. The agent's container holds
// nothing of the worker's: another user, other processes and files, no Workload API, no token, no address of a broker.
func apart(t *testing.T, i *installation.Installation, pod *corev1.Pod) {
	t.Helper()
	look := func(pid int, what string) string {
		return strings.TrimSpace(i.Cluster.Node(t, "bash", "-c", what, strconv.Itoa(pid)))
	}
	const (
		user        = `awk '/^Uid/ {print $2}' /proc/$0/status`
		file        = `readlink /proc/$0/exe`
		processes   = `readlink /proc/$0/ns/pid`
		mounts      = `cat /proc/$0/mountinfo`
		accounts    = `ls -A /proc/$0/root/var/run/secrets /proc/$0/root/run/secrets 2>/dev/null || true`
		child       = `pgrep -P $0`
		environment = `tr '\0' '\n' </proc/$0/environ`
	)
	worker, runner := process(t, i, pod, "worker"), process(t, i, pod, "agent")
	if w, r := look(worker, user), look(runner, user); w != "65532" || r != "1000" {
		t.Errorf("the worker is user %s, the runner user %s", w, r)
	}
	if got := look(runner, file); got != "/cofferdam/runner" {
		t.Errorf("process 1 of the agent's container is %s", got)
	}
	if w, r := look(worker, processes), look(runner, processes); w == r || r == "" {
		t.Errorf("both containers are in %s", w)
	}
	for _, where := range []string{" /spiffe-workload-api ", " /etc/cofferdam/harness "} {
		if w, r := strings.Contains(look(worker, mounts), where), strings.Contains(look(runner, mounts), where); !w || r {
			t.Errorf("%s: in the worker %t, in the agent %t", where, w, r)
		}
	}
	if got := look(runner, accounts); got != "" {
		t.Errorf("secrets in the agent's container: %s", got)
	}
	program, err := strconv.Atoi(look(runner, child))
	if err != nil {
		t.Fatalf("the runner's child: %v", err)
	}
	if got := look(program, user); got != "1000" {
		t.Errorf("the program is user %s", got)
	}
	own := look(program, environment)
	if !strings.Contains(own, "HOME=/home/agent") {
		t.Errorf("the program's environment: %s", own)
	}
	for _, word := range []string{"KUBERNETES", "svc.cluster.local", "spiffe", "TOKEN", "TRUST_DOMAIN", "10.96."} {
		if strings.Contains(own, word) {
			t.Errorf("the program's environment speaks of %s: %s", word, own)
		}
	}
}

// The program itself tries to read what is not its own, and what is, so that a refusal says something.
func TestAHostedAgentLooksAround(t *testing.T) {
	c := installation.Shared(t, config(t)).Talk(t, "stdio")
	for file, may := range map[string]bool{
		"/etc/passwd":                                         true,
		"/proc/self/status":                                   true,
		"/spiffe-workload-api":                                false,
		"/spiffe-workload-api/spire-agent.sock":               false,
		"/etc/cofferdam/harness/harness.json":                 false,
		"/proc/1/environ":                                     false, // the runner's
		"/proc/1/mem":                                         false,
		"/run/secrets/kubernetes.io/serviceaccount/token":     false,
		"/var/run/secrets/kubernetes.io/serviceaccount/token": false,
	} {
		r := c.Tell(t, script(step("read", map[string]any{"path": file})))
		if got := slices.ContainsFunc(r.Events, isType("tool.finished")); got != may {
			t.Errorf("%s: read %t, want %t: %s", file, got, may, r)
		}
	}
}
