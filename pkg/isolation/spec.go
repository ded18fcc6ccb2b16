package isolation

// Ids inside a sandbox. Nothing in it has an id that means anything on the host.
const (
	// WorkerID is the uid and gid of the program of a sandbox. Id 0 exists for the launcher alone.
	WorkerID = 1
	// RunnerID and AgentID are how the outer world sees the ids RunnerInside and AgentInside of its nested world.
	RunnerID = 2
	AgentID  = 3
	// RunnerInside is the uid and gid of the program of a nested world. It has CAP_KILL, CAP_SETUID, CAP_SETGID,
	// CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER there and no other capability.
	RunnerInside = 0
	// AgentInside is what the runner becomes for the programs that it starts. Where the layer [UID] is left out the
	// runner has this id itself: what it starts needs no change of id then, and is not kept from the runner.
	AgentInside = 1000
	// IDsPerSandbox is how many host ids each sandbox needs, from Launch.FirstID on.
	IDsPerSandbox = 8
)

// Spec is all that a sandbox consists of. What it does not name is not there: the root is an empty, read-only tmpfs of
// 1 MiB; /proc shows the sandbox's own processes, to each user its own; /dev has null, zero, full, random, urandom and
// the links fd, stdin, stdout and stderr; loopback is up and is the only network; the standard input is the null device unless the Launch
// has one.
// As JSON, with the nested world, it has at most 127 KiB.
type Spec struct {
	// Hostname inside, 1 to 64 characters of [a-z0-9.-].
	Hostname string `json:"hostname"`
	// Mounts are made in this order, at most 64 of them.
	Mounts []Mount `json:"mounts,omitempty"`
	// Files are written to the root before it becomes read-only, such as /etc/passwd and /etc/hosts.
	Files []File `json:"files,omitempty"`
	// Terminals gives the world a /dev/pts of its own, for programs that open pseudo-terminals.
	Terminals bool `json:"terminals,omitempty"`
	// Access is what Landlock lets through.
	Access Access `json:"access"`
	// Limits are those of setrlimit(2).
	Limits Limits `json:"limits"`
	// Profile of system calls.
	Profile Profile `json:"profile"`
	// Program becomes process 1.
	Program Program `json:"program"`
	// Nested is a second world, with pid, mount, ipc, uts and user namespaces, root, ids, Access and Limits of its own,
	// and with the SAME network namespace. Its program runs before that of the outer world and ends with it at the
	// latest. It sees nothing of the outer world but what its Mounts take FromOuter, and whatever listens on loopback.
	// Its parent is the outer program, which gets SIGCHLD at its end. It cannot have a nested world of its own.
	Nested *Spec `json:"nested,omitempty"`
	// Without leaves layers out, in both worlds. It has two uses: a test that shows what a layer alone keeps out, and
	// weak isolation, which leaves out what [Launcher.Probe] found missing because the operator said so.
	//
	// Without MountNamespace there is no root: Mounts, Files and Terminals are ignored, and every path is one of the
	// host; a sandbox with a nested world has no PIDNamespace then either, because /proc would number processes in
	// another way than the world does. Without PIDNamespace /proc is the host's, and only what stays in the group of
	// process 1 is sure to end with it. Without UserNamespace ids inside are ids of the host: FirstID+n in the outer
	// world, and those of RunnerInside and AgentInside themselves in the nested one.
	Without []Layer `json:"without,omitempty"`
}

// Mount puts something at Target. All mounts are nosuid, and nodev except for what /dev has anyway. What is mounted
// below Source on the host comes along.
type Mount struct {
	// Target is an absolute, clean path. What lacks of it is made, with mode 0755, where the root is still empty; inside
	// an earlier mount it has to exist. Links in it are not followed.
	Target string `json:"target"`
	// Source is a file, folder or socket of the host: absolute, links are followed. Whoever starts the sandbox has to
	// be allowed to reach it; the ids inside need not, but its own mode and owner count for them. A socket that its
	// server may make anew is reached by mounting its folder.
	Source string `json:"source,omitempty"`
	// FromOuter makes Source a path of the outer world. Only in a nested one.
	FromOuter bool `json:"from_outer,omitempty"`
	// Tmpfs is an empty file system of its own in place of Source.
	Tmpfs    *Tmpfs `json:"tmpfs,omitempty"`
	ReadOnly bool   `json:"read_only,omitempty"`
	NoExec   bool   `json:"no_exec,omitempty"`
}

// Tmpfs is memory that ends with the sandbox. It counts for the memory cgroup of who writes it.
type Tmpfs struct {
	// Size in bytes and Inodes bound it: ENOSPC beyond. Both are required; Size is rounded up to pages.
	Size   int64 `json:"size"`
	Inodes int64 `json:"inodes"`
	// Mode of its root, at most 03777, and who owns that: ids of the world that it is mounted in. With 02000 what is made
	// in it gets its group, also where who makes it has no id for that.
	Mode uint32 `json:"mode"`
	UID  uint32 `json:"uid,omitempty"`
	GID  uint32 `json:"gid,omitempty"`
}

// File of the root, owned by id 0. At most 16 KiB, and no secret: every program inside can read it where Mode lets it.
type File struct {
	Path    string `json:"path"`
	Content string `json:"content,omitempty"`
	Mode    uint32 `json:"mode"`
}

// Access is what Landlock lets through: absolute paths inside, each with all below it; a path that does not exist is an
// error. The program itself, /proc to be read, and what /dev has anyway are let through without being named. Signals and
// abstract Unix sockets end at the world, where the kernel has that (Linux 6.12).
type Access struct {
	// ReadOnly may be read, listed and executed.
	ReadOnly []string `json:"read_only,omitempty"`
	// ReadWrite may be changed as well.
	ReadWrite []string `json:"read_write,omitempty"`
}

// Limits of setrlimit(2), soft and hard alike, never above what the caller has itself. Zero leaves the caller's.
// Core dumps are always off, also where the machine pipes them to a program, and so are POSIX message queues.
type Limits struct {
	// OpenFiles of each process.
	OpenFiles uint64 `json:"open_files,omitempty"`
	// Processes and threads of each host id.
	Processes uint64 `json:"processes,omitempty"`
	// FileSize in bytes of each file that is written.
	FileSize uint64 `json:"file_size,omitempty"`
	// LockedMemory in bytes of each process.
	LockedMemory uint64 `json:"locked_memory,omitempty"`
}

// Profile names a set of system calls that are refused.
type Profile string

// The profiles; the list and its reasons are in the package's documentation.
const (
	// ProfileWorker is for programs of our own.
	ProfileWorker Profile = "worker"
	// ProfileProgram is for programs of others: it allows to ask for the network interfaces by netlink as well, which
	// Node.js and other runtimes do.
	ProfileProgram Profile = "program"
)

// Program is what runs inside.
type Program struct {
	// Path is absolute. It becomes the program's name as well.
	Path string   `json:"path"`
	Args []string `json:"args,omitempty"`
	// Env is all of the environment, "name=value" each.
	Env []string `json:"env,omitempty"`
	// Dir is / where it is empty.
	Dir string `json:"dir,omitempty"`
}
