package isolation

import (
	"fmt"
	"slices"
)

// Layer is one of the walls around a sandbox. Its value is what operators read.
type Layer string

// The layers. What each of them alone keeps out is in the package's documentation, and shown by a test of its name.
const (
	UserNamespace    Layer = "user-namespace"
	PIDNamespace     Layer = "pid-namespace"
	MountNamespace   Layer = "mount-namespace"
	NetworkNamespace Layer = "network-namespace"
	IPCNamespace     Layer = "ipc-namespace"
	UTSNamespace     Layer = "uts-namespace"
	CgroupNamespace  Layer = "cgroup-namespace"
	// ReadOnlyRoot is part of MountNamespace: without that there is no root.
	ReadOnlyRoot Layer = "read-only-root"
	Seccomp      Layer = "seccomp"
	Landlock     Layer = "landlock"
	// NoNewPrivileges is the bit of that name together with nosuid on every mount.
	NoNewPrivileges Layer = "no-new-privileges"
	// UID gives worker, runner and agent host ids of their own. Without it all three are one id.
	UID Layer = "uid"
	// ResourceLimits are the limits of setrlimit(2). Those of cgroups are not this package's.
	ResourceLimits Layer = "rlimits"
)

// Layers gives all layers, in the order of the package's documentation.
func Layers() []Layer {
	return []Layer{
		UserNamespace, PIDNamespace, MountNamespace, NetworkNamespace, IPCNamespace, UTSNamespace, CgroupNamespace,
		ReadOnlyRoot, Seccomp, Landlock, NoNewPrivileges, UID, ResourceLimits,
	}
}

func (l Layer) known() bool { return slices.Contains(Layers(), l) }

// Missing is a layer that this machine does not allow this user to put on.
type Missing struct {
	Layer Layer
	// Reason is what was tried and what the kernel answered.
	Reason string
	// Remedy is one sentence that says what the operator can do.
	Remedy string
}

// String is one line for people.
func (m Missing) String() string { return fmt.Sprintf("%s: %s. %s", m.Layer, m.Reason, m.Remedy) }

// LayersOf gives the layers alone, as Spec.Without takes them.
func LayersOf(missing []Missing) []Layer {
	out := make([]Layer, 0, len(missing))
	for _, m := range missing {
		out = append(out, m.Layer)
	}
	return out
}
