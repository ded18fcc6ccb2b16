package certify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

// guest is a binding in the middle of a run, whose message has a canary.
type guest struct {
	run    apiclient.Started
	worker procs.Process
	canary string
	impostor.Captured
}

// guest begins the run; leave ends it.
func (w *world) guest(ctx context.Context) (guest, error) { return w.guestOf(ctx, plain) }

func (w *world) guestOf(ctx context.Context, agent string) (g guest, err error) {
	g.canary = "canary-" + rand.Text()
	if g.run, err = w.talk(agent).begin(ctx, say(g.canary), busy()); err != nil {
		return g, err
	}
	if err = w.speaks(ctx, 0, g.run.RunID); err != nil {
		return g, err
	}
	s, b, err := w.seat(ctx, g.run.BindingID)
	if err != nil {
		return g, err
	}
	if g.worker, err = procs.Read(s.PID); err != nil {
		return g, err
	}
	g.Captured, err = impostor.Capture(b, g.worker, g.run)
	return g, err
}

func (w *world) leave(ctx context.Context, all ...guest) (err error) {
	for _, g := range all {
		if g.run.RunID != "" {
			err = errors.Join(err, w.cancel(ctx, g.run.RunID))
		}
	}
	return err
}

// visibility has two bindings work at once and looks into each for the other.
func visibility(ctx context.Context, w *world, l *ledger) {
	if os.Geteuid() != 0 {
		l.notRun("everything", "processes of other users are looked into: run it as root")
		return
	}
	a, err := w.guest(ctx)
	b, second := w.guest(ctx)
	defer func() { l.holds("the runs that were looked into can be cancelled", w.leave(ctx, a, b)) }()
	if err := errors.Join(err, second); err != nil {
		l.holds("two bindings are at work at once", err)
		return
	}
	worlds, err := worldsOf(os.Getpid(), a.worker.PID, b.worker.PID)
	if err == nil {
		err = judgeWorlds(worlds)
	}
	l.holds("each worker has namespaces and a user that neither the host nor another worker has", err)
	sights, err := w.look(ctx, a, b)
	if err == nil {
		err = judgeSights(sights)
	}
	l.figure("places", float64(len(sights)))
	l.holds("what one conversation says is in its own worker, and in nothing of the other", err)
	l.holds("the capabilities of one binding are refused for the other's run by every broker", w.borrow(ctx, a, b))
}

// worldOf is what /proc says of a process, by its kind.
type worldOf map[string]string

func worldsOf(pids ...int) (all []worldOf, err error) {
	for _, pid := range pids {
		w := worldOf{}
		for _, kind := range []string{"mnt", "pid", "net", "ipc", "uts"} {
			if w[kind], err = os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns", kind)); err != nil {
				return nil, err
			}
		}
		user, err := impostor.UserOf(procs.Process{PID: pid})
		if err != nil {
			return nil, err
		}
		w["user"] = strconv.Itoa(user)
		all = append(all, w)
	}
	return all, nil
}

// judgeWorlds sees that no two share anything.
func judgeWorlds(all []worldOf) error {
	var errs []error
	for i, one := range all {
		for j, other := range all[:i] {
			for kind, value := range one {
				if value == other[kind] || value == "" {
					errs = append(errs, fmt.Errorf("%d and %d (0 is the host) share their %s", j, i, kind))
				}
			}
		}
		if len(one) == 0 {
			errs = append(errs, errors.New("nothing is known of a process"))
		}
	}
	if len(all) < 3 {
		errs = append(errs, errors.New("fewer than two workers and the host: nothing is shown"))
	}
	return errors.Join(errs...)
}

// look looks for the canary of a in both workers, and for a's file in b's world.
func (w *world) look(ctx context.Context, a, b guest) (all []sight, err error) {
	for _, g := range []guest{a, b} {
		found, err := procs.Holds(g.worker.PID, a.canary)
		if err != nil {
			return nil, err
		}
		place := "the memory of worker " + strconv.Itoa(g.worker.PID)
		all = append(all, sight{place, "the canary of " + a.run.BindingID, len(found) > 0, g.worker.PID == a.worker.PID})
	}
	for _, name := range []string{"cmdline", "environ"} {
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(b.worker.PID), name))
		if err != nil {
			return nil, err
		}
		all = append(all, sight{name + " of the other worker", "the canary", strings.Contains(string(raw), a.canary), false})
	}
	for _, path := range []string{w.Data, filepath.Join(w.Data, "keys"), impostor.SocketOf(w.Data, a.Binding.Sandbox.InstanceUID)} {
		_, outside := os.Stat(path)
		_, inside := os.Stat(impostor.Inside(b.worker, path))
		all = append(all, sight{"the host", path, outside == nil, true}, sight{"the other worker's world", path, inside == nil, false})
	}
	stranger, err := w.Client(ctx, stack.Operator)
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		who  string
		api  *apiclient.Client
		owns bool
	}{{"its owner", w.users[0], true}, {"another user", stranger, false}} {
		answer, err := c.api.Do(ctx, http.MethodGet, "/api/v1/runs/"+a.run.RunID+"/events", "", nil)
		if err != nil {
			return nil, err
		}
		all = append(all, sight{"the API to " + c.who, "the run", answer.Status == http.StatusOK, c.owns})
	}
	return all, nil
}

// borrow uses a's place and capabilities for b's run, and b's for itself.
func (w *world) borrow(ctx context.Context, a, b guest) error {
	i, err := a.Start(ctx, a.User, nil)
	if err != nil {
		return err
	}
	own, others := w.target.held(a.Captured), w.target.held(a.Captured)
	stolen := w.target.held(b.Captured)
	for n := range others {
		others[n].Envelope = b.Envelope
	}
	var said [3][]string
	for n, calls := range [][]impostor.Call{others, stolen, own} {
		var failed error
		said[n], failed = i.Make(calls...)
		err = errors.Join(err, failed)
	}
	if err := errors.Join(err, i.Close()); err != nil {
		return err
	}
	return judgeBorrowed(said[0], said[1], said[2])
}

// judgeBorrowed sees that a worker is let in with its own capabilities and for its own
// run alone.
func judgeBorrowed(others, stolen, own []string) error {
	var errs []error
	for what, c := range map[string]struct {
		said []string
		want string
	}{
		"its own capability for the other's run":         {others, "capability_scope"},
		"the other's capability for the other's run":     {stolen, "capability_invalid"},
		"its own capability for its own run, as control": {own, impostor.Granted},
	} {
		for n, said := range c.said {
			if said != c.want {
				errs = append(errs, fmt.Errorf("%s, call %d: %s, want %s", what, n, said, c.want))
			}
		}
		if len(c.said) == 0 {
			errs = append(errs, fmt.Errorf("%s: nothing was called", what))
		}
	}
	return errors.Join(errs...)
}
