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
// # What is frozen
//
// To freeze is to send SIGSTOP, which a process can prepare for: SIGCONT from a timer
// or a descriptor of its own wakes it. So a frozen world is watched, ten times a
// second, until it is thawed or ended. One in which a process is awake, has ended, or
// has been on a processor since, is ended: all processes are killed, an archive that is
// under way fails, and the program's end has a reason. What a process does between two
// looks of the first half second, and then stops itself again, is not seen: until then
// the kernel's own work of stopping it looks the same.
//
// # What it leaves to others
//
// The runner does not have the kernel take a program before itself where memory is
// short: /proc is read-only in the world that it is made for, and a rule that let
// oom_score_adj be written would let programs write one another's memory as well, by
// /proc/PID/mem. The kernel takes the largest, which the runner hardly ever is.
//
// # Its own life
//
// The program counts for the same limit of processes. The runner makes the threads
// that it may need before there is a program, so that one that forks without end does
// not take them.
//
// A worker that hangs up takes the world with it: every process is killed and the
// folders are emptied before another connection is taken.
//
// The runner expects a process of its own. It reaps every child, and marks itself
// and its descriptors.
package runner
