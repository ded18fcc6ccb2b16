//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// cpuPeriod is the interval in which a quota of processor time is given out.
const cpuPeriod = 100 * time.Millisecond

// Limits bound all processes of a group together. What is 0 is not bounded.
type Limits struct {
	// Memory in bytes, the page cache and tmpfs files of the group included. No
	// swap comes on top of it where the machine can say so.
	Memory int64
	// PIDs is how many processes and threads there may be at once.
	PIDs int64
	// CPUs is how many processors' worth of time may be used; 0.5 is half of one.
	CPUs float64
}

func (l Limits) validate() error {
	if l.Memory < 0 || l.PIDs < 0 || l.CPUs < 0 || l.CPUs != 0 && l.quota() < 1 {
		return fmt.Errorf("cgroup: limits %+v are out of bounds", l)
	}
	return nil
}

// quota in microseconds for each cpuPeriod. The kernel wants a millisecond at
// least.
func (l Limits) quota() int64 {
	return int64(l.CPUs * float64(cpuPeriod.Microseconds()))
}

// bounds reports whether the controller has anything to do.
func (l Limits) bounds(c Controller) bool {
	switch c {
	case Memory:
		return l.Memory > 0
	case PIDs:
		return l.PIDs > 0
	case CPU:
		return l.CPUs > 0
	default:
		return false
	}
}

// set writes one controller's limit into a group.
func (l Limits) set(dir string, unified bool, c Controller) error {
	switch {
	case !l.bounds(c):
		return nil
	case c == PIDs:
		return write(dir, "pids.max", strconv.FormatInt(l.PIDs, 10))
	case c == CPU && unified:
		return write(dir, "cpu.max", fmt.Sprintf("%d %d", l.quota(), cpuPeriod.Microseconds()))
	case c == CPU:
		return errors.Join(
			write(dir, "cpu.cfs_period_us", strconv.FormatInt(cpuPeriod.Microseconds(), 10)),
			write(dir, "cpu.cfs_quota_us", strconv.FormatInt(l.quota(), 10)))
	case unified:
		return errors.Join(
			write(dir, "memory.max", strconv.FormatInt(l.Memory, 10)),
			ifThere(write(dir, "memory.swap.max", "0")))
	default:
		limit := strconv.FormatInt(l.Memory, 10)
		return errors.Join(
			write(dir, "memory.limit_in_bytes", limit),
			ifThere(write(dir, "memory.memsw.limit_in_bytes", limit)), // memory and swap together
			ifThere(write(dir, "memory.swappiness", "0")))
	}
}

// ifThere forgives what a machine without accounting of swap does not have.
func ifThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// write sets a value of a group. Its files are never created.
func write(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
