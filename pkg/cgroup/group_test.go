//go:build linux

package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Who takes memory without end is killed, and it is known why; who takes none
// beside it is not.
func TestAHogIsKilledAndCounted(t *testing.T) {
	m := manager(t, Memory)
	g, other := m.group(t, "hog", Limits{Memory: 64 << 20}), m.group(t, "other", Limits{Memory: 64 << 20})
	neighbour := run(t, other, "idle")
	if sig := run(t, g, "hog").signalled(); sig != syscall.SIGKILL {
		t.Errorf("the hog ended by signal %v", sig)
	}
	if c := counters(t, g); c.OOMKills == 0 {
		t.Errorf("counted %+v", c)
	}
	if c := counters(t, other); c.OOMKills != 0 || !exists(neighbour.Process.Pid) {
		t.Errorf("the neighbour was hurt: %+v", c)
	}
}

// A group is one thing: when the kernel kills one of its processes for memory, the
// others do not go on without it.
func TestOneKilledIsAllKilled(t *testing.T) {
	m := manager(t, Memory)
	g := m.group(t, "family", Limits{Memory: 96 << 20})
	watched := make(chan error, 1)
	go func() { watched <- g.EndOnOOM(t.Context()) }()
	if sig := run(t, g, "hog-child").signalled(); sig != syscall.SIGKILL {
		t.Errorf("the parent of the hog ended by signal %v", sig)
	}
	if err := <-watched; err != nil {
		t.Error(err)
	}
	if c := counters(t, g); c.OOMKills == 0 {
		t.Errorf("counted %+v", c)
	}
}

func TestTheWatchEndsWithItsContextAndWithTheGroup(t *testing.T) {
	m := manager(t, Memory)
	g := m.group(t, "watched", Limits{Memory: 64 << 20})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, ctx := range []context.Context{ctx, t.Context()} {
		wg.Go(func() {
			if err := g.EndOnOOM(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	cancel()
	if err := g.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err := g.EndOnOOM(t.Context()); err != nil {
		t.Errorf("of a group that is gone: %v", err)
	}
}

// A fork bomb gets no more than its share, and the next group gets all of its own.
func TestAForkBombStaysBounded(t *testing.T) {
	const most = 40
	m := manager(t, PIDs)
	g, other := m.group(t, "bomb", Limits{PIDs: most}), m.group(t, "other", Limits{PIDs: most})
	b := run(t, g, "bomb")
	if n := b.line(t); n == 0 || n >= most {
		t.Errorf("it started %d children, and may have %d with all its threads", n, most)
	}
	if c := counters(t, g); c.ForksRefused == 0 {
		t.Errorf("counted %+v", c)
	}
	if c := counters(t, other); c.ForksRefused != 0 {
		t.Errorf("the neighbour was refused: %+v", c)
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if exists(b.Process.Pid) {
		t.Error("alive after the group was killed")
	}
}

// A spinning process gets its quota and no more, however long it spins.
func TestASpinIsHeldToItsQuota(t *testing.T) {
	const share, slack = 0.05, 2 * time.Second / 10 // of a processor; a few periods of the scheduler
	m := manager(t, CPU)
	g := m.group(t, "spin", Limits{CPUs: share})
	begun := time.Now()
	held, free := run(t, g, "spin"), run(t, nil, "spin")
	used := time.Duration(held.line(t)) * time.Microsecond
	most := time.Duration(share*float64(time.Since(begun))) + slack
	if used > most {
		t.Errorf("with a twentieth of a processor it used %v, and may use %v", used, most)
	}
	if free.line(t) == 0 {
		t.Error("the neighbour got nothing")
	}
	if c := counters(t, g); c.Throttled == 0 {
		t.Errorf("counted %+v", c)
	}
}

// Removal ends what is inside, and can be repeated.
func TestRemovalLeavesNothing(t *testing.T) {
	m := manager(t)
	g := m.group(t, "gone", Limits{Memory: 64 << 20, PIDs: 64, CPUs: 1})
	p := run(t, g, "bomb")
	p.line(t)
	for range 2 {
		if err := g.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if exists(p.Process.Pid) {
		t.Error("alive after its group was removed")
	}
	for _, dir := range g.Dirs() {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	if len(g.Dirs()) > 0 {
		if _, err := g.Counters(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("counters of a group that is gone: %v", err)
		}
	}
	m.group(t, "gone", Limits{PIDs: 64}) // its name is free
}

// A group in a group has limits of its own, and those of the whole hold for both.
// What it counts is its own, and what is removed takes it along.
func TestAGroupInAGroup(t *testing.T) {
	const most = 30
	m := manager(t, PIDs)
	whole := m.group(t, "whole", Limits{PIDs: 2 * most})
	a, err := whole.Child("a", Limits{PIDs: most})
	if err != nil {
		t.Fatal(err)
	}
	b, err := whole.Child("b", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	first := run(t, a, "bomb")
	inA := first.line(t)
	second := run(t, b, "bomb")
	inB := second.line(t)
	if inA == 0 || inA >= most || inB == 0 || inA+inB >= 2*most {
		t.Errorf("%d and %d children, of %d and %d in all", inA, inB, most, 2*most)
	}
	if c := counters(t, a); c.ForksRefused == 0 {
		t.Errorf("its own limit: %+v", c)
	}
	files := a.CounterFiles()
	if !slices.ContainsFunc(files, func(path string) bool { return filepath.Base(path) == "pids.events" }) {
		t.Errorf("counters stand in %v", files)
	}
	for _, path := range files {
		if _, err := os.ReadFile(path); err != nil {
			t.Error(err)
		}
	}
	if err := whole.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exists(first.Process.Pid) || exists(second.Process.Pid) {
		t.Error("alive after the whole was removed")
	}
	for _, name := range []string{".", "../x", ""} {
		if g, err := whole.Child(name, Limits{}); err == nil {
			t.Errorf("%q became %v", name, g.Dirs())
		}
	}
}

func TestWhatCannotBeAGroup(t *testing.T) {
	m := manager(t)
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/x"} {
		if g, err := m.Create(name, Limits{}); err == nil {
			t.Errorf("%q became %v", name, g.Dirs())
		}
	}
	for _, l := range []Limits{{Memory: -1}, {PIDs: -1}, {CPUs: -1}, {CPUs: 1e-9}} {
		if g, err := m.Create("x", l); err == nil {
			t.Errorf("%+v became %v", l, g.Dirs())
		}
	}
	m.group(t, "twice", Limits{})
	if len(m.hierarchies) > 0 {
		if _, err := m.Create("twice", Limits{}); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a name twice: %v", err)
		}
	}
}

// What one process left when it was killed is ended and removed by the next; what
// a living one has is not touched.
func TestTheDeadAreSwept(t *testing.T) {
	m := manager(t, PIDs)
	living := m.group(t, "living", Limits{PIDs: 64})
	mine := run(t, living, "idle")
	o := run(t, nil, "owner")
	left := o.line(t)
	if err := o.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = o.Wait()
	if !exists(left) {
		t.Fatal("the kernel has ended what was left; nothing is tested")
	}
	next := manager(t, PIDs)
	if exists(left) {
		t.Error("what a dead process left still runs")
	}
	if !exists(mine.Process.Pid) {
		t.Error("what a living process has was ended")
	}
	for _, o := range next.hierarchies {
		entries, err := os.ReadDir(o.dir[:strings.LastIndexByte(o.dir, '/')])
		if err != nil {
			t.Fatal(err)
		}
		dirs := 0
		for _, e := range entries {
			if e.IsDir() {
				dirs++
			}
		}
		if dirs < 2 { // this and the living one; other packages' tests may have theirs
			t.Errorf("%d managers are left in %s", dirs, o.dir)
		}
	}
}

func TestCloseSaysWhatIsLeft(t *testing.T) {
	m, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(m.hierarchies) == 0 {
		t.Skipf("NOT TESTED on this machine: %v", m.Missing())
	}
	if _, err := m.Create("left", Limits{}); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err == nil || !strings.Contains(err.Error(), "left") {
		t.Errorf("close: %v", err)
	}
	if missing, err := Probe(t.Context()); err != nil || len(missing) != len(m.Missing()) { // sweeps
		t.Errorf("probe: %v, %v", missing, err)
	}
}
