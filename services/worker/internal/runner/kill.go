//go:build linux

package runner

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/reap"
	"cofferdam.dev/services/worker/internal/runner/proctree"
)

const (
	// look is how often is looked for what tells of no change.
	look = 20 * time.Millisecond
	// quick is the same where every turn of the loop ends something.
	quick = time.Millisecond
)

// killer ends the processes of the world.
type killer struct {
	tree *proctree.Tree
	reap *reap.Reaper
}

// terminate asks the processes of a group to end, and waits until they have, or
// until late. None of what they do meanwhile matters.
func (k *killer) terminate(group int, late <-chan struct{}) error {
	if err := k.tree.SignalGroup(group, unix.SIGTERM); err != nil {
		return err
	}
	if err := k.tree.Signal(unix.SIGCONT); err != nil { // one that is stopped cannot end by itself
		return err
	}
	for {
		change := k.reap.Next()
		k.reap.Reap()
		if empty, err := k.tree.GroupEmpty(group); empty || err != nil {
			return err
		}
		if !pause(change, late, look) {
			return nil
		}
	}
}

// everything ends every process, however fast they make others: they are stopped
// first, so that none can, and then killed; again, until none is left. It has no
// other end: a process that the kernel holds is waited for.
func (k *killer) everything() error {
	for wait := quick; ; wait = min(2*wait, look) {
		change := k.reap.Next()
		for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
			if err := k.tree.Signal(sig); err != nil {
				return err
			}
		}
		k.reap.Reap()
		if empty, err := k.tree.Empty(); empty || err != nil {
			return err
		}
		pause(change, nil, wait)
	}
}

// freeze stops every process until a look finds all of them stopped, twice: what
// was missed by the first could have let others go on. It gives up when late.
func (k *killer) freeze(late <-chan struct{}) (stopped []proctree.Process, done bool, err error) {
	var before []proctree.Process
	for round := 1; ; round++ {
		if err := k.tree.Signal(unix.SIGSTOP); err != nil {
			return nil, false, err
		}
		found, still, err := k.look()
		if err != nil {
			return nil, false, err
		}
		if still && before != nil && alike(before, found) {
			return found, true, nil
		}
		before = nil
		if still {
			before = append([]proctree.Process{}, found...) // not nil, also where there is none
			continue
		}
		if round%patience == 0 {
			if err := letExec(found); err != nil {
				return nil, false, err
			}
		}
		if !pause(nil, late, min(time.Duration(round)*quick, look)) {
			return nil, false, nil
		}
	}
}

// patience is how many looks a process has to stop by itself.
const patience = 4

// letExec lets those go on for a moment whose parent cannot stop: a parent that
// waits in vfork, as shells and runtimes do whenever they start something, waits in
// the kernel until its child executes or ends.
func letExec(found []proctree.Process) error {
	busy := map[int]bool{}
	for _, p := range found {
		busy[p.PID] = !p.Still
	}
	var errs []error
	for _, p := range found {
		if p.Still && busy[p.Parent] {
			errs = append(errs, p.Signal(unix.SIGCONT))
		}
	}
	return errors.Join(errs...)
}

// look reports which processes there are, and whether every one is stopped.
func (k *killer) look() (found []proctree.Process, still bool, err error) {
	found, still, err = k.tree.Scan()
	if err != nil {
		return nil, false, err
	}
	if len(found) == 0 { // or they are hidden from us, by how /proc was mounted
		empty, err := k.tree.Empty()
		return nil, still && empty, err
	}
	for _, p := range found {
		still = still && p.Still
	}
	return found, still, nil
}

func alike(a, b []proctree.Process) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a { // both in the order of their numbers
		if !a[i].Is(b[i]) {
			return false
		}
	}
	return true
}

// pause waits for a change, and no longer than d. It is false when it is late.
func pause(change, late <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-change:
	case <-t.C:
	case <-late:
		return false
	}
	return true
}
