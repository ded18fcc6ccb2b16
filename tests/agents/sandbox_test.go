package agents

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"cofferdam.dev/tests/internal/procs"
)

// inside gives the processes of a binding's sandbox: all that share its network,
// of which each sandbox has one of its own. Those of Cofferdam and the others are
// told apart by their programs.
func (c *talk) inside(t *testing.T, bindingID string) (own, programs []procs.Process) {
	t.Helper()
	network := func(pid int) string {
		s, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns", "net"))
		if err != nil {
			return "" // it has ended
		}
		return s
	}
	of := network(c.worker(t, bindingID).PID)
	if of == "" || of == network(os.Getpid()) {
		t.Fatalf("the sandbox has no network of its own: %q", of)
	}
	all, err := procs.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		switch {
		case network(p.PID) != of || !p.Alive():
		case slices.Contains([]string{"sandbox", "worker", "runner"}, p.Program()):
			own = append(own, p)
		default:
			programs = append(programs, p)
		}
	}
	return own, programs
}

// checkEmpty checks that nothing of the agent runs in a sandbox any more.
func (c *talk) checkEmpty(t *testing.T, bindingID string) {
	t.Helper()
	own, programs := c.inside(t, bindingID)
	if len(programs) > 0 {
		t.Errorf("of the agent there is still %v", programs)
	}
	if len(own) < 2 {
		t.Errorf("worker and runner are not both there, so nothing was looked at: %v", own)
	}
}
