//go:build linux

package isolation

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ids says how the ids of a world are written: as they stand in a Spec, all as one, or moved.
type ids struct {
	// One replaces every id; negative for none.
	One int64 `json:"one"`
	// Base is added to every id.
	Base uint32 `json:"base"`
	// Keep says that ids cannot be changed at all.
	Keep bool `json:"keep"`
}

func (i ids) of(id uint32) int {
	switch {
	case i.Keep:
		return -1 // to the kernel: leave it
	case i.One >= 0:
		return int(i.One)
	default:
		return int(i.Base + id)
	}
}

// own is the id that the program of a world runs under.
func own(w World) uint32 {
	if w == Nested {
		return RunnerInside
	}
	return WorkerID
}

// worldIDs gives the ids of both worlds of a sandbox.
func worldIDs(without []Layer, firstID uint32, root bool) (outer, nested ids) {
	user := !slices.Contains(without, UserNamespace)
	single := slices.Contains(without, UID)
	switch {
	case user && single:
		return ids{One: WorkerID}, ids{One: AgentInside}
	case user:
		return ids{One: -1}, ids{One: -1}
	case !root:
		return ids{One: -1, Keep: true}, ids{One: -1, Keep: true}
	case single:
		return ids{One: int64(firstID) + WorkerID}, ids{One: int64(firstID) + WorkerID}
	default: // without a user namespace ids are the host's, and the runner's is 0 for it to have capabilities
		return ids{One: -1, Base: firstID}, ids{One: -1}
	}
}

// foreignProc reports whether a world would see a /proc that numbers processes in another way than the world does. The
// ids of a nested world cannot be written then.
func foreignProc(without []Layer) bool {
	return slices.Contains(without, MountNamespace) && !slices.Contains(without, PIDNamespace) && !slices.Contains(without, UserNamespace)
}

// namespaces are the flags of clone(2) for a world. The nested one shares the network.
func namespaces(w World, without []Layer) uintptr {
	var flags uintptr
	for layer, flag := range map[Layer]uintptr{
		UserNamespace: unix.CLONE_NEWUSER, PIDNamespace: unix.CLONE_NEWPID, MountNamespace: unix.CLONE_NEWNS,
		NetworkNamespace: unix.CLONE_NEWNET, IPCNamespace: unix.CLONE_NEWIPC, UTSNamespace: unix.CLONE_NEWUTS,
	} {
		if !slices.Contains(without, layer) && (w == Outer || layer != NetworkNamespace) {
			flags |= flag
		}
	}
	return flags
}

// setupCaps are what a launcher needs in its own namespaces, and has for as long as it is the launcher.
var setupCaps = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID,
	unix.CAP_SETPCAP, unix.CAP_NET_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_SYS_ADMIN,
}

// attr gives what makes the first process of the outer world.
func attr(without []Layer, firstID uint32, root bool) func(*syscall.SysProcAttr) {
	return func(a *syscall.SysProcAttr) {
		a.Cloneflags |= namespaces(Outer, without)
		a.Setsid = true // away from the caller's terminal
		if slices.Contains(without, UserNamespace) {
			return // root keeps what it has until the launcher drops it; anybody else has nothing
		}
		a.GidMappingsEnableSetgroups = root
		if !slices.Contains(without, UID) {
			a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(firstID), Size: IDsPerSandbox}}
			a.GidMappings = a.UidMappings
			a.Credential = &syscall.Credential{}
			return
		}
		uid, gid := os.Geteuid(), os.Getegid()
		if root {
			uid, gid = int(firstID)+WorkerID, int(firstID)+WorkerID
		}
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: WorkerID, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: WorkerID, HostID: gid, Size: 1}}
		a.Credential = &syscall.Credential{Uid: WorkerID, Gid: WorkerID, NoSetGroups: !root}
		a.AmbientCaps = setupCaps // without them only id 0 keeps capabilities over execve
	}
}

// nestedAttr does the same for the nested world, in which ids are seen from the outer one.
func nestedAttr(without []Layer) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: namespaces(Nested, without),
		// What is sent to the worker's group is not for the agents. Without a pid namespace only the group ends them.
		Setsid: !slices.Contains(without, PIDNamespace),
	}
	switch {
	case slices.Contains(without, UserNamespace):
	case slices.Contains(without, UID):
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: AgentInside, HostID: WorkerID, Size: 1}}
		a.GidMappings = a.UidMappings
		a.AmbientCaps = setupCaps
	default:
		a.UidMappings = []syscall.SysProcIDMap{
			{ContainerID: RunnerInside, HostID: RunnerID, Size: 1}, {ContainerID: AgentInside, HostID: AgentID, Size: 1},
		}
		a.GidMappings = a.UidMappings
		a.GidMappingsEnableSetgroups = true
		a.Credential = &syscall.Credential{}
	}
	return a
}

// checkFirstID makes sure that the ids are ids, and none of them root's: a user namespace may hide its 0, and hides
// nothing from the kernel.
func checkFirstID(firstID uint32, root bool, without []Layer) error {
	if firstID > math.MaxInt32-IDsPerSandbox {
		return fmt.Errorf("isolation: first id %d: at most %d", firstID, math.MaxInt32-IDsPerSandbox)
	}
	if root && firstID == 0 {
		return errors.New("isolation: root has to give a first id, or worker and agent would be root on the host")
	}
	if !root && firstID != 0 {
		return fmt.Errorf("isolation: first id %d takes root", firstID)
	}
	if !root && !slices.Contains(without, UID) {
		return fmt.Errorf("isolation: ids of its own take root: without it the layer %s has to be left out", UID)
	}
	return nil
}
