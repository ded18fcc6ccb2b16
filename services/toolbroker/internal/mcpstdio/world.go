package mcpstdio

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cofferdam.dev/pkg/isolation"
	"cofferdam.dev/pkg/process"
)

// World is what a server sees of the machine: the programs and libraries that are
// installed there for everybody, its own program, the folders that are named, a
// /tmp of its own, and its own processes. It has neither the ids nor, where that is
// not asked for, the network of the broker.
type World struct {
	Launcher *isolation.Launcher
	// FirstID is as in isolation.Launch: the server's uid and gid on the host are one
	// more.
	FirstID uint32
	// Without are layers that are left out, because the operator said so.
	Without []isolation.Layer
	// Read and Write are absolute paths of files and folders that exist.
	Read, Write []string
	// Network is that of the machine.
	Network bool
}

// Of a world.
const (
	tmpBytes  = 64 << 20
	tmpInodes = 4096
	openFiles = 4096
)

// installed is what there is for everybody, as far as the machine has it. Of /etc
// it is what programs need to look up names, times and authorities.
func installed() []string {
	return []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32",
		"/etc/alternatives", "/etc/ca-certificates", "/etc/group", "/etc/hosts", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types",
		"/etc/nsswitch.conf", "/etc/passwd", "/etc/pki", "/etc/resolv.conf", "/etc/ssl",
	}
}

// spec is the world as package isolation builds it.
func (w *World) spec(command, env []string) isolation.Spec {
	s := isolation.Spec{
		Hostname: "tool-server", Profile: isolation.ProfileProgram, Without: w.Without,
		Limits:  isolation.Limits{OpenFiles: openFiles},
		Program: isolation.Program{Path: command[0], Args: command[1:], Env: env},
	}
	if w.Network && !slices.Contains(s.Without, isolation.NetworkNamespace) {
		s.Without = append(slices.Clone(s.Without), isolation.NetworkNamespace)
	}
	bare := slices.Contains(s.Without, isolation.MountNamespace)
	if bare { // every path is one of the host's, and Landlock is what is left
		s.Access = isolation.Access{ReadOnly: []string{"/"}, ReadWrite: w.Write}
		return s
	}
	paths := w.paths(command[0])
	tmp := true
	for _, p := range paths {
		s.Mounts = append(s.Mounts, isolation.Mount{Target: p.path, Source: p.path, ReadOnly: !p.write})
		if p.write {
			s.Access.ReadWrite = append(s.Access.ReadWrite, p.path)
		} else {
			s.Access.ReadOnly = append(s.Access.ReadOnly, p.path)
		}
		tmp = tmp && !within(p.path, "/tmp")
	}
	if tmp {
		s.Mounts = append(s.Mounts, isolation.Mount{Target: "/tmp", Tmpfs: &isolation.Tmpfs{Size: tmpBytes, Inodes: tmpInodes, Mode: 0o1777}})
		s.Access.ReadWrite = append(s.Access.ReadWrite, "/tmp")
	}
	return s
}

// visible is a path of the host that the world has.
type visible struct {
	path  string
	write bool
}

// paths are those that have to be mounted: what lies in others after them, and
// nothing twice.
func (w *World) paths(program string) []visible {
	var all []visible
	for _, p := range installed() {
		if _, err := os.Stat(p); err == nil {
			all = append(all, visible{path: p})
		}
	}
	for _, p := range append([]string{program}, w.Read...) {
		all = append(all, visible{path: filepath.Clean(p)})
	}
	for _, p := range w.Write {
		all = append(all, visible{filepath.Clean(p), true})
	}
	slices.SortStableFunc(all, func(a, b visible) int {
		if c := strings.Compare(a.path, b.path); c != 0 {
			return c
		}
		if a.write { // before the same path to be read
			return -1
		}
		return 1
	})
	var out []visible
	for _, p := range all {
		covered := slices.ContainsFunc(out, func(o visible) bool { return within(p.path, o.path) && (o.write || !p.write) })
		if !covered {
			out = append(out, p)
		}
	}
	return out
}

// within says that a path is a folder or lies in it.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// start starts the command in the world.
func (w *World) start(ctx context.Context, command, env []string, in *os.File, out, stderr io.Writer) (*process.Process, error) {
	return w.Launcher.Start(ctx, isolation.Launch{Spec: w.spec(command, env), FirstID: w.FirstID, Stdin: in, Stdout: out, Stderr: stderr})
}
