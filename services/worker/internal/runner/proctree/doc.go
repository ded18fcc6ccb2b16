//go:build linux

// Package proctree sees and signals the processes of a world: everything in the
// pid namespace that the calling process is process 1 of, or else everything that
// descends from it. A process can leave its parent, its session and its group, but
// neither of these.
//
// The calling process is never signalled. It must be its descendants' subreaper
// ([Open] sees to that), and reap them.
package proctree

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Tree is the processes of a world. It is safe for concurrent use.
type Tree struct {
	self int
	own  bool
}

// Open begins to see the world's processes. It fails where /proc does not show
// them: what cannot be seen would be taken for gone.
func Open() (*Tree, error) {
	t := &Tree{self: os.Getpid()}
	t.own = t.self == 1
	link, err := os.Readlink("/proc/self")
	if err != nil {
		return nil, fmt.Errorf("proctree: %w", err)
	}
	if link != strconv.Itoa(t.self) {
		return nil, errors.New("proctree: /proc is that of another pid namespace")
	}
	if !t.own {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("proctree: subreaper: %w", err)
		}
	}
	return t, nil
}

// Own reports whether the world is a pid namespace: the kernel then signals all
// of it at once, and nothing that is being forked slips through.
func (t *Tree) Own() bool { return t.own }
