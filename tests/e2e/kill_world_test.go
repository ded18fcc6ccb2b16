package e2e

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

// asking is the agent that asks a person before it calls the tool of the gate.
const asking = "asking"

// mortal starts a stack of its own, in which parts may be stopped: nobody else is
// served meanwhile. A sandbox is kept ready, and two agents are served: the usual
// one, and asking.
func mortal(t *testing.T) *world {
	t.Helper()
	command := stack.Need(t)
	w := &world{}
	var err error
	if w.folder, err = os.MkdirTemp("", "cofferdam-kill-"); err != nil { //nolint:usetesting // t.TempDir is too long for the path of a socket
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	gates, err := w.openGate()
	if err != nil {
		t.Fatal(err)
	}
	agents := filepath.Join(w.folder, "agents.json")
	if err := os.WriteFile(agents, mortalAgents(t), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Stack, err = stack.Up(t.Context(), command, filepath.Join(w.folder, "data"),
		"--mcp-config", gates, "--agents", agents, "--warm", "1", "--log-level", "debug")
	if err != nil {
		t.Fatal(err)
	}
	if w.user, err = w.Client(t.Context(), stack.User); err != nil {
		t.Fatal(err)
	}
	if w.operator, err = w.OperatorClient(t.Context(), stack.Operator); err != nil {
		t.Fatal(err)
	}
	return w
}

func mortalAgents(t *testing.T) []byte {
	t.Helper()
	agent := func(id string, approve ...string) map[string]any {
		approve = append([]string{}, approve...) // a list also where it is empty
		return map[string]any{
			"agent_id": id, "version": 1, "name": id, "organization": "local", "harness": "native", "adapter_version": "1.1.0",
			"model_alias": "demo", "profile": "local", "tools": []string{"gate.pass"}, "approve_tools": approve,
		}
	}
	raw, err := json.Marshal(map[string]any{"agents": []any{agent(stack.Agent), agent(asking, "gate.pass")}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// hold stops a process, and gives what lets it go on. That happens at the end of the
// test at the latest.
func hold(t *testing.T, p procs.Process) (release func()) {
	t.Helper()
	if err := syscall.Kill(p.PID, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop %s: %v", p, err)
	}
	release = func() { _ = syscall.Kill(p.PID, syscall.SIGCONT) } // it may have been killed
	t.Cleanup(release)
	return release
}

// holdProgram stops the one process of the stack that runs a program.
func (w *world) holdProgram(t *testing.T, name string) (release func()) {
	t.Helper()
	p, err := w.Program(name)
	if err != nil {
		t.Fatal(err)
	}
	return hold(t, p)
}

// holdQuiet stops the one process of a program that writes records where it is not
// just doing that: what it has locked would be locked for all.
func (w *world) holdQuiet(t *testing.T, name string) (release func()) {
	t.Helper()
	return w.holdQuietly(t, func() func() { return w.holdProgram(t, name) })
}

// holdQuietly does it with whatever stop stops.
func (w *world) holdQuietly(t *testing.T, stop func() (release func())) (release func()) {
	t.Helper()
	records := w.database(t, "records.db", "rw")
	until(t, "a moment in which nothing is written", func(ctx context.Context) (bool, error) {
		release = stop()
		conn, err := records.Conn(ctx)
		if err != nil {
			return false, err
		}
		_, busy := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		if busy == nil {
			_, err = conn.ExecContext(ctx, "ROLLBACK")
		} else {
			release()
		}
		return busy == nil, errors.Join(err, conn.Close())
	})
	return release
}

// database opens one of the databases of the stack.
func (w *world) database(t *testing.T, name, mode string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.Data, "state", name)+"?mode="+mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// snapshotOf waits until the state of a run is written. No head names it before the
// log holds what it covers.
func (w *world) snapshotOf(t *testing.T, run apiclient.Started) {
	t.Helper()
	states := w.database(t, "state.db", "ro")
	until(t, "a snapshot of "+run.RunID, func(ctx context.Context) (bool, error) {
		var n int
		err := states.QueryRowContext(ctx, "SELECT count(*) FROM thread_snapshots WHERE run_id = ?", run.RunID).Scan(&n)
		return n > 0, err
	})
}

// spare waits for the worker that is ready for whoever comes, and gives it.
func (w *world) spare(t *testing.T) (found procs.Process) {
	t.Helper()
	until(t, "a worker that nobody has", func(ctx context.Context) (bool, error) {
		page, _, err := w.operator.Bindings(ctx, "")
		if err != nil {
			return false, err
		}
		all, err := w.Processes()
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(all, func(p procs.Process) bool {
			taken := slices.ContainsFunc(page, func(b apiclient.Binding) bool { return b.Sandbox != nil && b.Sandbox.PID == p.PID })
			return p.Program() == "worker" && p.Alive() && !taken
		})
		if i < 0 {
			return false, nil
		}
		found = all[i]
		return true, nil
	})
	return found
}

// lease waits until the lease of a binding is as far as a state.
func (w *world) lease(t *testing.T, run apiclient.Started, state string) {
	t.Helper()
	until(t, "a lease that is "+state, func(ctx context.Context) (bool, error) {
		b, err := w.operator.Binding(ctx, run.BindingID)
		return err == nil && b.Lease != nil && b.Lease.State == state, err
	})
}

// generation waits until a binding has a generation of the lease.
func (w *world) generation(t *testing.T, bindingID string, want uint32) {
	t.Helper()
	until(t, "the next generation", func(ctx context.Context) (bool, error) {
		b, err := w.operator.Binding(ctx, bindingID)
		return err == nil && b.Generation >= want, err
	})
}

// word is a name that nothing else has.
func word() string { return "k-" + rand.Text() }
