//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killCounted bounds how long after its notice an OOM kill may take to be counted.
	killCounted = time.Second
	countPause  = 2 * time.Millisecond
)

// EndOnOOM waits until the group has used up its memory and one of its processes
// was killed for that, and then ends the others as well: half of what ran there is
// none of it. It returns when that has happened, when the group is removed or has no
// memory controller, or when ctx ends, which are all no error. On version 2 it has
// the kernel do so, also after it has returned.
func (g *Group) EndOnOOM(ctx context.Context) error {
	i := slices.IndexFunc(g.places, func(p place) bool { return slices.Contains(p.controllers, Memory) })
	if i < 0 {
		return nil
	}
	dir := g.places[i].dir
	if g.places[i].unified {
		if err := write(dir, "memory.oom.group", "1"); err != nil && !gone(err) {
			return fmt.Errorf("cgroup: %w", err)
		}
		return nil
	}
	notices, err := oomNotices(dir)
	if err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("cgroup: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = notices.Close() })
	defer func() {
		if stop() {
			_ = notices.Close()
		}
	}()
	for {
		var n [8]byte
		if _, err := notices.Read(n[:]); err != nil {
			if ctx.Err() != nil {
				return nil // it was closed because of that
			}
			return fmt.Errorf("cgroup: OOM notice: %w", err)
		}
		killed, err := killedSoon(ctx, dir)
		switch {
		case ctx.Err() != nil, gone(err): // the group was removed
			return nil
		case err != nil:
			return err
		case killed:
			return g.Kill(ctx)
		}
	}
}

// killedSoon waits a moment for a kill to be counted: the notice comes before it,
// and none comes where the kernel found memory after all.
func killedSoon(ctx context.Context, dir string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, killCounted)
	defer cancel()
	kills := sources(Memory, false)[0]
	for {
		n, err := kills.read(dir)
		if err != nil || n > 0 {
			return n > 0, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-time.After(countPause):
		}
	}
}

// oomNotices gives a descriptor that becomes readable when the group has used up
// its memory, and when it is removed.
func oomNotices(dir string) (*os.File, error) {
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return nil, err
	}
	defer control.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "oom")
	if err := write(dir, "cgroup.event_control", fmt.Sprintf("%d %d", fd, control.Fd())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
