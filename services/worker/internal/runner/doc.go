//go:build linux

// Package runner is process 1 of the world that an agent program lives in. It
// starts, stops and ends the program for the worker, which is outside and speaks
// [runnerproto] to it over a Unix socket, and it brings files in and out.
//
// The world itself, its namespaces, its mounts, its limits and its system call
// filter, was built by whoever started the runner. What the runner adds: the
// program runs as another user, without capabilities and without a way to get any
// (no_new_privs), with none of the runner's descriptors and environment; nothing
// that it starts outlives a kill; and what is archived stands still meanwhile.
//
// A worker that hangs up takes the world with it: every process is killed and the
// folders are emptied before another connection is taken.
//
// The runner expects a process of its own. It reaps every child, and marks itself
// and its descriptors.
package runner
