//go:build linux

package proctree

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Glimpse is what a process that does nothing leaves as it is.
type Glimpse struct {
	// Gone: it has ended. A zombie has too.
	Gone bool
	// Awake: one of its threads is neither stopped nor held by the kernel, as it is
	// while the machine goes to sleep.
	Awake bool
	// Switches is how often its threads were put on a processor and taken off again.
	// A thread that shows as stopped has one to come, when it leaves the processor.
	Switches uint64
}

// Look looks at this process again, and at no other that got its number.
func (p Process) Look() (Glimpse, error) {
	folder := filepath.Join("/proc", strconv.Itoa(p.PID))
	tasks, err := os.ReadDir(filepath.Join(folder, "task"))
	if gone(err) {
		return Glimpse{Gone: true}, nil
	}
	if err != nil {
		return Glimpse{}, fmt.Errorf("proctree: %w", err)
	}
	g := Glimpse{Gone: true}
	for _, task := range tasks {
		text, err := os.ReadFile(filepath.Join(folder, "task", task.Name(), "status"))
		if gone(err) {
			continue
		}
		if err != nil {
			return Glimpse{}, fmt.Errorf("proctree: %w", err)
		}
		s := parseStatus(text)
		g.Switches += s.switches
		switch s.state {
		case 'Z', 'X', 'x':
		case 'T', 't', 'D': // who comes to D by itself has been on a processor
			g.Gone = false
		default:
			g.Gone, g.Awake = false, true
		}
	}
	// What was read is of this process if it still is.
	s, err := readStat(filepath.Join(folder, "stat"))
	switch {
	case gone(err):
		return Glimpse{Gone: true}, nil
	case err != nil:
		return Glimpse{}, fmt.Errorf("proctree: %w", err)
	case s.start != p.start:
		return Glimpse{Gone: true}, nil
	}
	return g, nil
}

// status is what is taken from /proc/PID/task/TID/status; see proc_pid_status(5).
type status struct {
	state    byte
	switches uint64
}

// parseStatus reads the file. The name of the program stands in it on a line of its
// own, with newlines escaped. A kernel that counts no switches has none.
func parseStatus(text []byte) (s status) {
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(name) {
		case "State":
			if len(value) > 0 {
				s.state = value[0]
			}
		case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
			if n, err := strconv.ParseUint(string(value), 10, 64); err == nil {
				s.switches += n
			}
		}
	}
	return s
}
