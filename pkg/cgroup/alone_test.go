//go:build linux

package cgroup

import (
	"fmt"
	"testing"
)

// Each limit alone holds something: with all of them an attack is contained, and with
// this one left out and all others on it gets what it wants.
func TestLimitAloneHolds(t *testing.T) {
	attacks := map[Controller]struct {
		without func(*Limits)
		// reached reports whether the attack in a group got what it wants.
		reached func(t *testing.T, g *Group) (bool, string)
	}{
		Memory: {func(l *Limits) { l.Memory = 0 }, tooMuchMemory},
		PIDs:   {func(l *Limits) { l.PIDs = 0 }, tooManyProcesses},
		CPU:    {func(l *Limits) { l.CPUs = 0 }, aProcessorForItself},
	}
	for _, c := range Controllers() {
		t.Run(string(c), func(t *testing.T) {
			a, ok := attacks[c]
			if !ok {
				t.Fatal("no attack shows what this limit is for")
			}
			m := manager(t, Controllers()...)
			all := Limits{Memory: 64 << 20, PIDs: 40, CPUs: 1}
			if c == CPU {
				all.CPUs = 0.01 // what is little on the slowest machine
			}
			if reached, detail := a.reached(t, m.group(t, "with", all)); reached {
				t.Errorf("with all limits: %s", detail)
			}
			rest := all
			a.without(&rest)
			if reached, detail := a.reached(t, m.group(t, "without", rest)); !reached {
				t.Errorf("without the limit the attack is contained as well, so it shows nothing: %s", detail)
			}
		})
	}
}

// tooMuchMemory takes twice what a group may have.
func tooMuchMemory(t *testing.T, g *Group) (bool, string) {
	b := run(t, g, "take")
	var n int
	_, err := fmt.Fscanln(b.out, &n)
	return err == nil, fmt.Sprintf("it took %d MiB, %v, %+v", n, err, counters(t, g))
}

// tooManyProcesses starts half as many again as a group may have.
func tooManyProcesses(t *testing.T, g *Group) (bool, string) {
	n := run(t, g, "crowd").line(t)
	return n == crowd, fmt.Sprintf("it started %d processes, %+v", n, counters(t, g))
}

// aProcessorForItself uses a processor for longer than a group may without a pause.
func aProcessorForItself(t *testing.T, g *Group) (bool, string) {
	n := run(t, g, "burn").line(t)
	c := counters(t, g)
	return c.Throttled == 0, fmt.Sprintf("it used %d µs, %+v", n, c)
}
