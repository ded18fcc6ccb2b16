//go:build linux

package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Counters tell what a group ran into since it was made. Where a controller is
// missing they stay 0.
type Counters struct {
	// OOMKills is how many of its processes were killed because the group had used
	// up its memory.
	OOMKills uint64
	// ForksRefused is how many processes and threads could not be made.
	ForksRefused uint64
	// Throttled is in how many periods of 100 ms the group had to wait for more
	// processor time.
	Throttled uint64
}

// source is where one counter stands.
type source struct {
	file, field string
	into        func(*Counters) *uint64
}

func sources(c Controller, unified bool) []source {
	kills := func(k *Counters) *uint64 { return &k.OOMKills }
	switch {
	case c == PIDs:
		return []source{{"pids.events", "max", func(k *Counters) *uint64 { return &k.ForksRefused }}}
	case c == CPU:
		return []source{{"cpu.stat", "nr_throttled", func(k *Counters) *uint64 { return &k.Throttled }}}
	case unified:
		return []source{{"memory.events", "oom_kill", kills}}
	default:
		return []source{{"memory.oom_control", "oom_kill", kills}}
	}
}

func (s source) read(dir string) (uint64, error) {
	f, err := os.Open(filepath.Join(dir, s.file))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if name != s.field {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.file, err)
		}
		return n, nil
	}
	return 0, errors.Join(fmt.Errorf("%s has no %q", s.file, s.field), lines.Err())
}

// Counters reads all counters. A group that was removed has none, which is an
// error that is [fs.ErrNotExist].
func (g *Group) Counters() (Counters, error) {
	var out Counters
	var errs []error
	for _, p := range g.places {
		for _, c := range p.controllers {
			for _, s := range sources(c, p.unified) {
				n, err := s.read(p.dir)
				errs = append(errs, err)
				*s.into(&out) = n
			}
		}
	}
	return out, errors.Join(errs...)
}
