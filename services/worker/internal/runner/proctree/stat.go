//go:build linux

package proctree

import (
	"bytes"
	"errors"
	"strconv"
)

// stat is what is taken from /proc/PID/stat; see proc_pid_stat(5).
type stat struct {
	state  byte
	parent int
	group  int
	start  uint64 // in clock ticks since boot; with the pid it names a process for good
}

// Fields of the file, counted from the state.
const (
	fieldState  = 0
	fieldParent = 1
	fieldGroup  = 2
	fieldStart  = 19
)

var errStat = errors.New("proctree: not a stat line")

// parseStat reads a line of /proc/PID/stat. The name of the program stands in it
// as the program wants it: with blanks, newlines and parentheses.
func parseStat(line []byte) (stat, error) {
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return stat{}, errStat
	}
	fields := bytes.Fields(line[end+1:])
	if len(fields) <= fieldStart || len(fields[fieldState]) != 1 {
		return stat{}, errStat
	}
	parent, err1 := strconv.Atoi(string(fields[fieldParent]))
	group, err2 := strconv.Atoi(string(fields[fieldGroup]))
	start, err3 := strconv.ParseUint(string(fields[fieldStart]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return stat{}, errStat
	}
	return stat{state: fields[fieldState][0], parent: parent, group: group, start: start}, nil
}

// still reports whether a task in this state runs no instruction of its program,
// and will not before somebody lets it: stopped, traced, dead.
func still(state byte) bool {
	switch state {
	case 'T', 't', 'Z', 'X', 'x':
		return true
	default: // R, S, D, I, P: runs, or will when what it waits for has come
		return false
	}
}
