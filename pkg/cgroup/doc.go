// Package cgroup bounds what groups of processes may use of a machine, with the
// control groups of Linux, and tells which bound a group ran into.
//
// It works on version 1, where each controller has a hierarchy of its own, on
// version 2, and on machines that have some of both. All groups stand below the
// group of this process, so that whatever bounds this process bounds them too:
//
//	<own group>/cofferdam/<manager>/<group>
//
// A [Manager] holds a lock on its folder for as long as its process lives. A
// folder without one was left by a process that died: the next Manager ends what
// is in it and removes it.
//
// What the machine does not allow is said by [Manager.Missing], and left out.
//
// Linux only.
package cgroup
