package certify

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/internal/secrets"
)

// canaries looks for the keys and tokens of the stack in and around a worker that works.
func canaries(ctx context.Context, w *world, l *ledger) {
	if os.Geteuid() != 0 {
		l.notRun("everything", "processes of other users are looked into: run it as root")
		return
	}
	keys, err := secrets.OfStack(w.Data)
	if err != nil {
		l.holds("the stack has secrets to look for", err)
		return
	}
	keys["token of the user"] = strings.TrimPrefix(w.users[0].Authorization(), "Bearer ")
	g, err := w.guest(ctx)
	if err != nil {
		l.holds("a worker is in the middle of a run", err)
		return
	}
	worker, err := around(g.worker, keys)
	if err == nil {
		worker, err = inMemory(worker, g, keys)
	}
	if err == nil {
		err = judgeSights(worker)
	}
	l.holds("environment, arguments, workspace, open files and memory of a worker hold no secret of a service or user", err)
	l.holds("a worker leaves no core", noCore(g.worker.PID))
	l.holds("its run can be cancelled", w.leave(ctx, g))
	logs, err := inFolder(w.Data, "logs", keys, g.canary, g.Binding.Sandbox.InstanceUID)
	if err == nil {
		err = judgeSights(logs)
	}
	l.figure("logs", float64(len(logs)))
	l.holds("no log, of level debug, has a secret or what was said", err)
}

// around looks at what /proc tells of a process.
func around(p procs.Process, keys secrets.Secrets) (all []sight, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(p.PID))
	for _, name := range []string{"environ", "cmdline"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		all = append(all, sight{name, strings.Join(keys.In(string(raw)), ", "), len(keys.In(string(raw))) > 0, false})
	}
	env, err := procs.Environment(p.PID)
	if err != nil {
		return nil, err
	}
	all = append(all, sight{"the environment", "variables", len(env) > 0, false})
	files, err := procs.Files(p.PID)
	if err != nil {
		return nil, err
	}
	for _, target := range files {
		inside := filepath.Join(dir, "root", target)
		if info, err := os.Stat(inside); err != nil || !info.Mode().IsRegular() {
			continue // a socket, a pipe, a device
		}
		raw, err := os.ReadFile(inside)
		if err != nil {
			return nil, err
		}
		all = append(all, sight{"the open file " + target, "a secret", len(keys.In(string(raw))) > 0, false})
	}
	written, err := secrets.FilesUnder(filepath.Join(dir, "root"), "workspace")
	if err != nil {
		return nil, err
	}
	for path, raw := range written {
		all = append(all, sight{path, "a secret", len(keys.In(string(raw))) > 0, false})
	}
	return all, nil
}

// inMemory looks for the secrets in the memory of a worker, whose own canary has to be
// there. The capabilities of its run are there as well, and are no secret of a service.
func inMemory(all []sight, g guest, keys secrets.Secrets) ([]sight, error) {
	texts := append(slices.Collect(maps.Values(keys)), g.canary)
	found, err := procs.Holds(g.worker.PID, texts...)
	if err != nil {
		return nil, err
	}
	for what, text := range keys {
		all = append(all, sight{"the memory of the worker", what, slices.Contains(found, text), false})
	}
	return append(all, sight{"the memory of the worker", "its own canary", slices.Contains(found, g.canary), true}), nil
}

// inFolder looks through files, of which one at least has to have the text control.
func inFolder(data, folder string, keys secrets.Secrets, canary, control string) (all []sight, err error) {
	files, err := secrets.FilesUnder(data, folder)
	if err != nil {
		return nil, err
	}
	there := false
	for path, raw := range files {
		text := string(raw)
		there = there || strings.Contains(text, control)
		all = append(all, sight{path, strings.Join(append(keys.In(text), "or what was said"), ", "), len(keys.In(text)) > 0 || strings.Contains(text, canary), false})
	}
	return append(all, sight{folder, "the sandbox of a run that was made", there, true}), nil
}

// noCore sees that a process may write none.
func noCore(pid int) error {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "limits"))
	if err != nil {
		return err
	}
	return judgeLimits(string(raw))
}
