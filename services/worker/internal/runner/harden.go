//go:build linux

package runner

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

const firstExtra = 3 // the first descriptor after the standard streams

// Harden marks this process, before anything is opened: its memory is not
// dumped and not shown to other users, its programs leave no core files, end by
// SIGXCPU where their processor time is limited, and inherit no descriptor that
// somebody left open to it.
func Harden() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	if err := withoutCores(); err != nil {
		return fmt.Errorf("core limit: %w", err)
	}
	if err := warnedOfCPU(); err != nil {
		return fmt.Errorf("processor limit: %w", err)
	}
	if err := unix.CloseRange(firstExtra, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	return nil
}

// withoutCores limits core files to one byte: with none the kernel still pipes a dump
// to a program of the host, where core_pattern says so, and with one it does not. A
// limit of none that somebody has set before cannot be raised.
func withoutCores() error {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &r); err != nil {
		return err
	}
	r.Max = min(1, r.Max)
	r.Cur = r.Max
	return unix.Setrlimit(unix.RLIMIT_CORE, &r)
}

// warnedOfCPU lowers the soft limit of processor time below the hard one: at that a
// program is killed without a word of why.
func warnedOfCPU() error {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CPU, &r); err != nil {
		return err
	}
	if r.Max == unix.RLIM_INFINITY || r.Max < 2 || r.Cur < r.Max {
		return nil
	}
	r.Cur = r.Max - 1
	return unix.Setrlimit(unix.RLIMIT_CPU, &r)
}
