package process

import (
	"path/filepath"
	"slices"

	"cofferdam.dev/pkg/isolation"
)

// Paths inside a sandbox. They are the same in every one: agents derive names
// from them, and find their sessions again by those names.
const (
	workspaceInside = "/workspace"
	homeInside      = "/home/agent"
	tempInside      = "/tmp"
	servicesInside  = "/run/cofferdam"
	runnerInside    = "/run/runner"
	limitsInside    = "/run/limits"
	binariesInside  = "/cofferdam"
	configInside    = binariesInside + "/harness.json"

	workloadName = "workload"
	workerName   = "worker"
	runnerName   = "runner"
)

const (
	// hostname of every sandbox; a name would say something about the binding.
	hostname = "sandbox"
	// bytesPerInode is how many bytes of a tmpfs there are for each file in it.
	bytesPerInode = 4 << 10
	runnerMiB     = 1
	mib           = 1 << 20
	maxOpenFiles  = 4096
	// programPath is where a hosted program's commands are looked for.
	programPath = "PATH=/usr/local/bin:/usr/bin:/bin"
)

// Services are those that a worker may call. Each has a socket in the folder
// Config.Sockets under its name and ".sock".
func Services() []string {
	return []string{"capability", "toolbroker", "statefacade", "filebroker", "modelproxy"}
}

// paths are where a worker finds things: inside its root, or on the host where
// the machine allows no mount namespace.
type paths struct{ worker, workspace, workload, runner, config string }

func inside() paths {
	return paths{
		worker: filepath.Join(binariesInside, workerName), workspace: workspaceInside, workload: serviceInside(workloadName),
		runner: filepath.Join(runnerInside, "runner"+socketSuffix), config: configInside,
	}
}

func serviceInside(name string) string { return filepath.Join(servicesInside, name+socketSuffix) }

// Address is where a worker finds a service, one of Services.
func (p *Provider) Address(service string) string {
	if p.rootless() {
		return "unix://" + p.serviceSocket(service)
	}
	return "unix://" + serviceInside(service)
}

func (p *Provider) serviceSocket(name string) string {
	return filepath.Join(p.cfg.Sockets, name+socketSuffix)
}

// rootless reports that sandboxes have no root of their own, and every path in one is
// one of the host.
func (p *Provider) rootless() bool { return slices.Contains(p.without, isolation.MountNamespace) }

// spec is all that a sandbox of a profile consists of. workload is the host path
// of the instance's own Workload API, and counters are those of a hosted program's
// group.
func (p *Provider) spec(profile *Profile, at paths, workload string, counters []string) isolation.Spec {
	s := isolation.Spec{
		Hostname: hostname,
		Mounts: []isolation.Mount{
			readOnly(at.worker, p.cfg.WorkerPath),
			{Target: workspaceInside, NoExec: profile.Program == nil, Tmpfs: workspace(profile)},
			socket(workloadName, workload),
		},
		Access:  isolation.Access{ReadWrite: []string{at.workspace}},
		Limits:  isolation.Limits{OpenFiles: maxOpenFiles},
		Profile: isolation.ProfileWorker,
		Program: isolation.Program{Path: at.worker, Args: p.arguments(profile, at), Dir: at.workspace},
		Without: p.without,
	}
	for _, name := range Services() {
		s.Mounts = append(s.Mounts, socket(name, p.serviceSocket(name)))
	}
	if !p.bounded {
		s.Limits.Processes = uint64(profile.Limits.PIDs) //nolint:gosec // it is positive
	}
	if profile.HarnessConfig != "" {
		s.Mounts = append(s.Mounts, readOnly(configInside, profile.HarnessConfig))
		s.Access.ReadOnly = append(s.Access.ReadOnly, at.config)
	}
	if profile.Program != nil {
		p.host(&s, profile, counters)
	}
	return s
}

// host adds the nested world of a hosted program.
func (p *Provider) host(s *isolation.Spec, profile *Profile, counters []string) {
	// The runner makes its socket in a folder that the worker can enter and the
	// program cannot. The socket gets the worker's group from it, which the runner
	// could not give.
	s.Mounts = append(s.Mounts, isolation.Mount{Target: runnerInside, NoExec: true, Tmpfs: &isolation.Tmpfs{
		Size: runnerMiB * mib, Inodes: runnerMiB * mib / bytesPerInode, Mode: 0o2750, UID: isolation.RunnerID, GID: isolation.WorkerID,
	}})
	s.Access.ReadWrite = append(s.Access.ReadWrite, runnerInside)

	runner := filepath.Join(binariesInside, runnerName)
	limits := isolation.Limits{OpenFiles: maxOpenFiles}
	if !p.bounded {
		limits.Processes = uint64(profile.Program.Limits.groupPIDs()) //nolint:gosec // it is positive
	}
	n := &isolation.Spec{
		Hostname: hostname, Files: programFiles(), Terminals: true,
		Mounts: []isolation.Mount{
			readOnly(runner, p.cfg.RunnerPath),
			{Target: runnerInside, Source: runnerInside, FromOuter: true, NoExec: true},
			{Target: workspaceInside, Source: workspaceInside, FromOuter: true},
			{Target: homeInside, Tmpfs: programTmpfs(profile)},
			{Target: tempInside, Tmpfs: programTmpfs(profile)},
		},
		Access: isolation.Access{
			ReadOnly:  append([]string{binariesInside, "/etc"}, profile.Program.ReadOnlyPaths...),
			ReadWrite: []string{runnerInside, workspaceInside, homeInside, tempInside},
		},
		Limits: limits, Profile: isolation.ProfileProgram,
		Program: isolation.Program{
			Path: runner, Args: append([]string{"--listen", "unix://" + inside().runner}, p.cfg.RunnerArgs...), Env: []string{programPath}, Dir: "/",
		},
	}
	for _, path := range profile.Program.ReadOnlyPaths {
		n.Mounts = append(n.Mounts, readOnly(path, path))
	}
	for _, file := range counters {
		at := counterInside(file)
		n.Mounts = append(n.Mounts, isolation.Mount{Target: at, Source: file, ReadOnly: true, NoExec: true})
		n.Access.ReadOnly = append(n.Access.ReadOnly, at)
	}
	s.Nested = n
}

// programFiles are what programs expect in a root of their own.
func programFiles() []isolation.File {
	return []isolation.File{
		{Path: "/etc/passwd", Mode: 0o644, Content: "root:x:0:0::/:/sbin/nologin\nagent:x:1000:1000::" + homeInside + ":/bin/sh\n"},
		{Path: "/etc/group", Mode: 0o644, Content: "root:x:0:\nagent:x:1000:\n"},
		{Path: "/etc/hosts", Mode: 0o644, Content: "127.0.0.1 localhost\n::1 localhost\n"},
	}
}

func readOnly(target, source string) isolation.Mount {
	return isolation.Mount{Target: target, Source: source, ReadOnly: true}
}

func socket(name, source string) isolation.Mount {
	return isolation.Mount{Target: serviceInside(name), Source: source, ReadOnly: true, NoExec: true}
}

// workspace belongs to whoever works in it.
func workspace(profile *Profile) *isolation.Tmpfs {
	t := tmpfs(profile, isolation.WorkerID)
	if profile.Program != nil {
		t.UID, t.GID, t.Mode = isolation.AgentID, isolation.AgentID, 0o755
	}
	return t
}

// programTmpfs is a folder of the hosted program's, in its own ids.
func programTmpfs(profile *Profile) *isolation.Tmpfs { return tmpfs(profile, isolation.AgentInside) }

func tmpfs(profile *Profile, owner uint32) *isolation.Tmpfs {
	size := profile.Limits.WorkspaceMiB * mib
	return &isolation.Tmpfs{Size: size, Inodes: size / bytesPerInode, Mode: 0o700, UID: owner, GID: owner}
}

// arguments of a worker. Anybody on the machine can read them: no secrets.
func (p *Provider) arguments(profile *Profile, at paths) []string {
	args := []string{
		"--listen", "fd://3", "--workload-api", "unix://" + at.workload, "--trust-domain", p.cfg.TrustDomain.Name(),
		"--harness", profile.Harness, "--workspace", at.workspace, "--capability", p.Address("capability"),
	}
	if profile.HarnessConfig != "" {
		args = append(args, "--harness-config", at.config)
	}
	if profile.Program != nil {
		args = append(args, "--runner", "unix://"+at.runner)
	}
	return append(args, p.cfg.WorkerArgs...)
}
