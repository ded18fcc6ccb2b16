package certify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"cofferdam.dev/tests/internal/forbidden"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/internal/procs"
)

// NetworkVariable is 1 in a process that has a network namespace of its own, with the
// addresses of what is forbidden; see forbidden.EnterNetwork.
const NetworkVariable = "COFFERDAM_CERTIFY_NETWORK"

// attempt to get to a forbidden target.
type attempt struct {
	What string
	// Outside is what came of it from beside the sandbox, and Inside from within.
	Outside, Inside error
	// Came is how often the target was reached from within.
	Came int64
}

// egress dials what is forbidden from the network of a sandbox, beside whose certifier
// it listens and answers.
func egress(ctx context.Context, w *world, l *ledger) {
	if os.Getenv(NetworkVariable) == "" {
		l.notRun("everything", "a network namespace with the forbidden addresses takes root: run it as root")
		return
	}
	attempts, err := w.attempts(ctx)
	if err == nil {
		err = judgeUnreached(attempts)
	}
	l.figure("attempts", float64(len(attempts)))
	l.holds("from the network of a sandbox nothing answers that is not its own: metadata, Kubernetes API, databases, resolvers, hosts outside, listeners of the stack", err)
}

func (w *world) attempts(ctx context.Context) (all []attempt, err error) {
	targets, err := forbidden.Listen(ctx, w.cfg.Folder)
	if err != nil {
		return nil, err
	}
	defer forbidden.Close(targets)
	g, err := w.guest(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.leave(ctx, g)) }()
	family, err := familyOf(g.worker.PID)
	if err != nil {
		return nil, err
	}
	for _, p := range family {
		for _, t := range targets {
			all = append(all, try(ctx, p, t))
		}
	}
	return all, nil
}

// try gets to a target from beside a process's world, and from within.
func try(ctx context.Context, p procs.Process, t *forbidden.Target) attempt {
	a := attempt{What: fmt.Sprintf("%s (%s %s) from %s", t.What, t.Network, t.Address, p.Program()), Outside: t.Dial(ctx)}
	before := t.Reached()
	switch {
	case t.Network == "unix" && !strings.HasPrefix(t.Address, "@"):
		_, a.Inside = os.Stat(impostor.Inside(p, filepath.Clean(t.Address)))
	default:
		a.Inside = forbidden.Within(p.PID, func() error { return t.Dial(ctx) })
	}
	a.Came = t.Reached() - before
	return a
}

// familyOf is a process and all that came of it.
func familyOf(pid int) ([]procs.Process, error) {
	all, err := procs.List()
	if err != nil {
		return nil, err
	}
	var family []procs.Process
	member := map[int]bool{pid: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if (member[p.Parent] || p.PID == pid) && p.Alive() && !member[-p.PID] {
				member[p.PID], member[-p.PID], grown = true, true, true
				family = append(family, p)
			}
		}
	}
	if len(family) == 0 {
		return nil, fmt.Errorf("process %d is gone", pid)
	}
	return family, nil
}

// judgeUnreached sees that everything answers outside and nothing inside.
func judgeUnreached(all []attempt) error {
	var errs []error
	for _, a := range all {
		switch {
		case a.Outside != nil:
			errs = append(errs, fmt.Errorf("%s does not even answer outside, so that silence means nothing: %w", a.What, a.Outside))
		case a.Inside == nil || a.Came > 0:
			errs = append(errs, fmt.Errorf("%s was reached", a.What))
		}
	}
	if len(all) == 0 {
		errs = append(errs, errors.New("nothing was tried"))
	}
	return errors.Join(errs...)
}
