// Package secretfile decides whether a file that holds a secret may be used: nobody else may be able to read it.
//
// Two ways to keep a secret in a file are accepted, as PostgreSQL accepts them for its keys:
//
//   - only the owner has rights to it, mode 0600 or less;
//   - it is root's and read-only, and one group may read it, of which this process is a member without being root: 0440 or
//     less. So a Secret of Kubernetes looks in a pod with an fsGroup: the kubelet writes it as root for the pod's group,
//     which no other pod has, into a volume that no other pod mounts, and a process that was taken over cannot change it.
//     Whoever gives a secret to a group on a shared machine decides who is in that group.
//
// A group that may write, a group that the process is not in, and everybody else are refused.
package secretfile

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

const (
	ownersOnly = 0o700
	readOnly   = 0o440
)

// Private returns nil if only those who may read the file, as info has it, or else what to do about it. Use the info of
// the file that was opened where that is possible: a name can mean another file by then.
func Private(info fs.FileInfo) error {
	perm := info.Mode().Perm()
	if perm&^ownersOnly == 0 {
		return nil
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && perm&^readOnly == 0 && owner.Uid == 0 && os.Geteuid() != 0 && member(int(owner.Gid)) {
		return nil
	}
	return fmt.Errorf("it has mode %04o, so that others may use it: run chmod 600 on it; a Secret of Kubernetes needs defaultMode 0440 and a pod with an fsGroup",
		perm)
}

// member says whether the process is in a group.
func member(gid int) bool {
	if gid == os.Getegid() {
		return true
	}
	groups, err := os.Getgroups()
	return err == nil && slices.Contains(groups, gid)
}
