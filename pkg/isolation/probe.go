//go:build linux

package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
)

// remedies says for each layer what an operator can do about its absence.
var remedies = map[Layer]string{
	UserNamespace: "Allow user namespaces: raise the sysctl user.max_user_namespaces, set kernel.unprivileged_userns_clone=1 and " +
		"kernel.apparmor_restrict_unprivileged_userns=0 where the kernel has them, and in a container use a seccomp profile that lets clone and unshare through",
	PIDNamespace:     "Raise the sysctl user.max_pid_namespaces, and in a container add CAP_SYS_ADMIN or a seccomp profile that lets clone through",
	MountNamespace:   "Raise the sysctl user.max_mnt_namespaces; in a container leave /proc unmasked (--security-opt systempaths=unconfined) and /dev as it is; Linux 5.12 is needed",
	NetworkNamespace: "Raise the sysctl user.max_net_namespaces, and in a container add CAP_SYS_ADMIN or a seccomp profile that lets clone through",
	IPCNamespace:     "Raise the sysctl user.max_ipc_namespaces, and use a kernel with CONFIG_IPC_NS",
	UTSNamespace:     "Raise the sysctl user.max_uts_namespaces, and use a kernel with CONFIG_UTS_NS",
	CgroupNamespace:  "Raise the sysctl user.max_cgroup_namespaces, and in a container add CAP_SYS_ADMIN or a seccomp profile that lets unshare through",
	ReadOnlyRoot:     "Use Linux 5.12 or newer, and in a container a seccomp profile that lets mount_setattr through",
	Seccomp:          "Use a kernel with CONFIG_SECCOMP_FILTER, on amd64 or arm64",
	Landlock:         "Use Linux 5.19 or newer with landlock in its list of security modules (boot parameter lsm=landlock,...)",
	NoNewPrivileges:  "Use Linux 3.5 or newer",
	UID:              "Run it as root, with a range of ids that is not used otherwise and that /proc/self/uid_map shows as mapped",
	ResourceLimits:   "Let the process lower its own limits: a seccomp profile or security module refuses setrlimit",
}

// Probe finds out which layers this machine does not allow this user, by starting sandboxes with a trivial program;
// none is what production asks for. firstID is as in Launch, and is not used where the caller is not root. The error is that of a machine on which nothing can be
// started at all.
func (l *Launcher) Probe(ctx context.Context, firstID uint32) ([]Missing, error) {
	p := &probe{launcher: l, firstID: firstID, root: os.Geteuid() == 0}
	if !p.root {
		p.firstID = 0
		p.miss(UID, errors.New("ids of their own can be given by root alone"))
	}
	for {
		err := p.try(ctx, LayersOf(p.missing))
		if err == nil {
			return p.missing, nil
		}
		before := len(p.missing)
		var setup *SetupError
		switch {
		case !errors.As(err, &setup) || ctx.Err() != nil:
			return nil, err
		case setup.Layer != "":
			p.miss(setup.Layer, err)
		default:
			p.blame(ctx)
		}
		if len(p.missing) == before {
			return nil, err
		}
	}
}

// probe is what one Probe has found.
type probe struct {
	launcher *Launcher
	firstID  uint32
	root     bool
	missing  []Missing
}

func (p *probe) miss(l Layer, err error) {
	if !p.misses(l) {
		p.missing = append(p.missing, Missing{Layer: l, Reason: err.Error(), Remedy: remedies[l]})
	}
}

func (p *probe) misses(l Layer) bool { return slices.Contains(LayersOf(p.missing), l) }

// blame tries one namespace at a time: the kernel makes all of them by one call and does not say which it minds.
func (p *probe) blame(ctx context.Context) {
	var with []Layer
	for _, l := range []Layer{UserNamespace, UID, PIDNamespace, MountNamespace, NetworkNamespace, IPCNamespace, UTSNamespace} {
		if p.misses(l) {
			continue
		}
		if err := p.try(ctx, allBut(append(slices.Clone(with), l))); err != nil {
			p.miss(l, err)
			continue
		}
		if l == UserNamespace { // what gives the right to the others
			with = append(with, l)
		}
	}
}

func allBut(keep []Layer) []Layer {
	return slices.DeleteFunc(Layers(), func(l Layer) bool { return slices.Contains(keep, l) })
}

// try runs both worlds to their end.
func (p *probe) try(ctx context.Context, without []Layer) error {
	const inside = "/probe"
	s := Spec{
		Hostname: "probe", Profile: ProfileWorker, Without: without,
		Mounts:  []Mount{{Target: inside, Source: p.launcher.path, ReadOnly: true}},
		Program: Program{Path: inside, Args: []string{roleProbe}},
	}
	if slices.Contains(without, MountNamespace) {
		s.Program.Path = p.launcher.path
	}
	if nested := s; !foreignProc(without) {
		nested.Without, nested.Profile, nested.Terminals = nil, ProfileProgram, true
		s.Nested = &nested
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	sandbox, err := p.launcher.Start(ctx, Launch{Spec: s, FirstID: p.firstID})
	if err != nil {
		return err
	}
	<-sandbox.Done()
	if err := sandbox.Err(); err != nil {
		return fmt.Errorf("isolation: the program of the probe: %w", err)
	}
	return nil
}
