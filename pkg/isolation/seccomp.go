//go:build linux

package isolation

import (
	"fmt"
	"maps"
	"slices"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// cloneFlags is the argument of clone(2) that has the flags, on every architecture but s390.
const cloneFlags = 0

// Offsets in struct seccomp_data.
const (
	dataNumber = 0
	dataArch   = 4
)

// filters assembles the filters of a profile for this architecture. The kernel runs all of them and obeys the strictest.
//
// A call that is refused for some arguments only has a filter to itself: the library's program does not load the number
// again after it has looked at arguments, so whatever followed would compare an argument with the numbers of calls.
func filters(p Profile) ([][]bpf.RawInstruction, error) {
	a, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	var whole []seccomp.SyscallGroup
	partly := map[string]*seccomp.SyscallGroup{}
	for _, r := range refusals(p) {
		for _, name := range r.calls {
			if _, ok := a.SyscallNames[name]; !ok {
				continue
			}
			if len(r.when) == 0 {
				whole = append(whole, seccomp.SyscallGroup{Names: []string{name}, Action: r.action()})
				continue
			}
			if partly[name] == nil {
				partly[name] = &seccomp.SyscallGroup{Action: r.action()}
			}
			for _, row := range r.when {
				partly[name].NamesWithCondtions = append(partly[name].NamesWithCondtions, seccomp.NameWithConditions{Name: name, Conditions: row})
			}
		}
	}
	first, err := assemble(a, whole)
	if err != nil {
		return nil, err
	}
	all := [][]bpf.RawInstruction{first}
	for _, name := range slices.Sorted(maps.Keys(partly)) {
		program, err := assemble(a, []seccomp.SyscallGroup{*partly[name]})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, program)
	}
	return all, nil
}

func (r *refusal) action() seccomp.Action {
	if r.answer == 0 {
		return seccomp.ActionErrno | seccomp.Action(unix.EPERM)
	}
	return seccomp.ActionErrno | seccomp.Action(r.answer) //nolint:gosec // below 4,096
}

// assemble makes one filter.
//
// The library's program lets everything through that comes by another architecture's door, as is right for a list of
// what is allowed; on amd64 the door of the 32-bit calls is open to every program. So who comes by it is killed, and
// calls that are newer than the library's list do not exist: nobody has judged them.
//
//nolint:gosec // numbers of calls and architectures have 32 bits
func assemble(a *arch.Info, groups []seccomp.SyscallGroup) ([]bpf.RawInstruction, error) {
	policy := seccomp.Policy{DefaultAction: seccomp.ActionAllow, Syscalls: groups}
	program, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("assemble: %w", err)
	}
	newest := slices.Max(slices.Collect(maps.Keys(a.SyscallNumbers)))
	door := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(a.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(seccomp.ActionKillProcess)},
		bpf.LoadAbsolute{Off: dataNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: uint32(newest), SkipFalse: 1}, // those of x32 as well
		bpf.RetConstant{Val: uint32(seccomp.ActionErrno) | uint32(unix.ENOSYS)},
	}
	return bpf.Assemble(append(door, program...))
}

// loadFilters puts the filters on the calling thread, which is the one that becomes the program.
func loadFilters(p Profile) error {
	all, err := filters(p)
	if err != nil {
		return err
	}
	for _, raw := range all {
		instructions := make([]unix.SockFilter, 0, len(raw))
		for _, r := range raw {
			instructions = append(instructions, unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K})
		}
		prog := &unix.SockFprog{Len: uint16(len(instructions)), Filter: &instructions[0]} //nolint:gosec // the kernel takes at most 4,096
		//nolint:gosec // the kernel copies it before the call returns
		_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(prog)))
		if errno != 0 {
			return errno
		}
	}
	return nil
}
