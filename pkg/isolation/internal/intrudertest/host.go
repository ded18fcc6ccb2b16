//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	seccomp "github.com/elastic/go-seccomp-bpf"

	"cofferdam.dev/pkg/isolation"
)

// start starts the sandbox of its standard input and stays, for a test that
// kills it.
func start([]string) (string, error) {
	var launch struct {
		Spec    isolation.Spec
		FirstID uint32
	}
	if err := json.NewDecoder(os.Stdin).Decode(&launch); err != nil {
		return "", err
	}
	l, err := isolation.NewLauncher(mustExecutable())
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	_, err = l.Start(context.Background(), isolation.Launch{Spec: launch.Spec, FirstID: launch.FirstID, Stdout: os.Stdout})
	if err != nil {
		return "", err
	}
	return wait(nil)
}

// prober probes with a first id, on a machine where some calls are refused. Each
// further argument is CALL or CALL:FLAGS.
func prober(args []string) (string, error) {
	policy := seccomp.Policy{DefaultAction: seccomp.ActionAllow}
	for _, a := range args[1:] {
		name, flags, some := strings.Cut(a, ":")
		g := seccomp.SyscallGroup{Action: seccomp.ActionErrno}
		if some {
			g.NamesWithCondtions = []seccomp.NameWithConditions{{Name: name, Conditions: []seccomp.Condition{
				{Argument: 0, Operation: seccomp.BitsSet, Value: uint64(bits(flags))},
			}}}
		} else {
			g.Names = []string{name}
		}
		policy.Syscalls = append(policy.Syscalls, g)
	}
	if len(args) > 1 {
		filter := seccomp.Filter{NoNewPrivs: os.Geteuid() != 0, Flag: seccomp.FilterFlagTSync, Policy: policy}
		if err := seccomp.LoadFilter(filter); err != nil {
			return "", fmt.Errorf("test filter: %w", err)
		}
	}
	l, err := isolation.NewLauncher(mustExecutable())
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	missing, err := l.Probe(ctx, bits(args[0]))
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(missing)
	return string(b), err
}

func bits(s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		panic(err)
	}
	return uint32(n)
}

func mustExecutable() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}
