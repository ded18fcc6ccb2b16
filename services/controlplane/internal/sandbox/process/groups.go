package process

import (
	"context"
	"path/filepath"

	"cofferdam.dev/pkg/cgroup"
	"cofferdam.dev/pkg/isolation"
)

// groups bound one sandbox: all of it together, and a hosted program in it, so that
// what the program runs into is not the worker's end.
type groups struct {
	whole, worker *cgroup.Group
	program       *cgroup.Group // nil where nothing is hosted
}

func (p *Provider) makeGroups(uid string, profile *Profile) (*groups, error) {
	l := profile.Limits
	whole, err := p.cgroups.Create(uid, cgroup.Limits{Memory: l.MemoryMiB * mib, PIDs: l.PIDs, CPUs: l.CPUs})
	if err != nil {
		return nil, err
	}
	g := &groups{whole: whole, worker: whole}
	if profile.Program == nil {
		return g, nil
	}
	// What fails leaves the rest to remove.
	if g.worker, err = whole.Child(workerName, cgroup.Limits{}); err != nil {
		return g, err
	}
	limits := profile.Program.Limits
	g.program, err = whole.Child("program", cgroup.Limits{Memory: limits.MemoryMiB * mib, PIDs: limits.groupPIDs()})
	return g, err
}

// place puts the first process of a world into its group.
func (g *groups) place(w isolation.World, pid int) error {
	if w == isolation.Nested {
		return g.program.Add(pid)
	}
	return g.worker.Add(pid)
}

// counters are the files that tell the runner what its program ran into.
func (g *groups) counters() []string {
	if g.program == nil {
		return nil
	}
	return g.program.CounterFiles()
}

func (g *groups) remove(ctx context.Context) error {
	if g == nil {
		return nil
	}
	return g.whole.Remove(ctx)
}

// counterInside is where the runner finds a counter.
func counterInside(file string) string { return filepath.Join(limitsInside, filepath.Base(file)) }
