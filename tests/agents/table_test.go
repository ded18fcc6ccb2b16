package agents

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// HardVariable, if it is 1, has the agents tested too that are the hard cases.
const HardVariable = "COFFERDAM_TEST_HARD_AGENTS"

// agent is a real agent program, and what is known of it.
type agent struct {
	// name of its preset.
	name string
	// program is the file that is started, below node_modules; "" is the preset's
	// command, as npm links it.
	program string
	// hard cases have packages of their own, and are tested on demand.
	hard bool
	// memoryMiB is what its sandbox may take: its files, the worker and the program.
	memoryMiB int
	// asks says that it asks before it runs a command.
	asks bool
	// shellName is what it calls its shell; "" is bash.
	shellName string
	// mute says that it tells of a command neither its arguments nor what it said.
	// A person decides on its title, and a model that is told of the decision in
	// another process has to guess the call, which the demo model cannot.
	mute bool
}

// theAgents are in the order of the time that they take.
func theAgents() []agent {
	return []agent{
		// The package opencode-ai is a script that chooses among binaries like this one.
		{name: "opencode", program: "opencode-linux-x64-baseline/bin/opencode", memoryMiB: 1536, asks: true},
		{name: "claude", memoryMiB: 1024, asks: true},
		{name: "pi", memoryMiB: 768, shellName: "execute"},
		{name: "codex", memoryMiB: 1024, hard: true, shellName: "execute"},
		{name: "gemini", memoryMiB: 1280, hard: true, asks: true, shellName: "run_shell_command", mute: true},
	}
}

// packages is the folder of npm packages that an agent comes from.
func (a agent) packages() string {
	if a.hard {
		return filepath.Join("hard", "node_modules")
	}
	return "node_modules"
}

// shell is the tool id of its shell.
func (a agent) shell() string { return "agent." + cmp.Or(a.shellName, "bash") }

// installed reports whether the packages are there.
func (a agent) installed() (bool, error) {
	_, err := os.Stat(filepath.Join(a.packages(), ".installed"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// wanted reports whether the agent is to be tested in this run.
func (a agent) wanted() bool { return !a.hard || os.Getenv(HardVariable) == "1" }

// Which agents a test is for.
func every(agent) bool      { return true }
func asking(a agent) bool   { return a.asks }
func unasking(a agent) bool { return !a.asks }

// each runs a test with every agent that it is for.
func each(t *testing.T, is func(a agent) bool, test func(t *testing.T, w *world, a agent)) {
	t.Helper()
	t.Parallel()
	for _, a := range theAgents() {
		if !a.wanted() || !is(a) {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			there, err := a.installed()
			switch {
			case err != nil:
				t.Fatal(err)
			case !there && os.Getenv("CI") == "true":
				t.Fatal("the npm packages are not installed: run `make node-modules agents-hard`")
			case !there:
				t.Skip("NOT TESTED: the npm packages are not installed: run `make node-modules`, and `make agents-hard` for " + HardVariable)
			}
			test(t, theStack(t), a)
		})
	}
}
