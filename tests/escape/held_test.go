package escape

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/isolation"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/internal/procs"
)

// What the kernel says of every process of a sandbox: no way to privileges, a filter
// of system calls, no capability but for the runner, which needs some over its own
// program, and a user that nothing else on the machine is.
func TestEveryProcessOfASandboxIsHeld(t *testing.T) {
	needsPython(t)
	w := theStack(t)
	c := w.talk(program)
	run := c.begin(t, encode(t, []attack{{"do": "stay"}}))
	c.sees(t, run, "text.delta")
	defer c.cancel(t, run)
	worker := c.worker(t, run.BindingID)
	first, err := impostor.UserOf(worker)
	if err != nil {
		t.Fatal(err)
	}
	first -= isolation.WorkerID
	runner := w.runner(t, worker)
	all, err := procs.List()
	if err != nil {
		t.Fatal(err)
	}
	held(t, worker, first+isolation.WorkerID, true)
	held(t, runner, first+isolation.RunnerID, false)
	programs := 0
	for _, p := range all {
		if p.Parent == runner.PID && p.Alive() {
			programs++
			held(t, p, first+isolation.AgentID, true)
		}
	}
	if programs == 0 {
		t.Error("the program does not run")
	}
}

// held checks what a process is and may. The runner takes the agent's id on one thread
// for the moment in which it touches a file for it, so that it is looked at again.
func held(t *testing.T, p procs.Process, user int, powerless bool) {
	t.Helper()
	id := strconv.Itoa(user)
	want := map[string]string{
		"NoNewPrivs": "1", "Seccomp": "2", "CapInh": "0000000000000000", "CapAmb": "0000000000000000",
		"Uid": strings.Join([]string{id, id, id, id}, " "), "Gid": strings.Join([]string{id, id, id, id}, " "),
	}
	if powerless {
		want["CapEff"], want["CapPrm"] = "0000000000000000", "0000000000000000"
	}
	var wrong []string
	for range looks {
		wrong = nil
		status := statusOf(t, p)
		for name, value := range want {
			if status[name] != value {
				wrong = append(wrong, fmt.Sprintf("%s: %s is %s, want %s", p, name, status[name], value))
			}
		}
		if len(wrong) == 0 {
			return
		}
		lookAgain(t)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// looks at a process, 20 ms apart.
const looks = 50

func lookAgain(t *testing.T) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(20 * time.Millisecond):
	}
}

func statusOf(t *testing.T, p procs.Process) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.Join(strings.Fields(value), " ")
	}
	return status
}
