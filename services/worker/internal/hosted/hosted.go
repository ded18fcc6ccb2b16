// Package hosted is what the adapters of agent programs ask of the world that a
// program runs in: another uid, its own processes, no view of the worker.
// Package runnerclient gives one, by way of the runner.
package hosted

import (
	"context"
	"io"
	"time"
)

// Folders of every world, the same in every sandbox: agents derive names from
// them, and find their sessions again by those names.
const (
	// Home and Workspace belong to the program, as does Temp.
	Home      = "/home/agent"
	Workspace = "/workspace"
	Temp      = "/tmp"
)

// Command is a program to start. It inherits nothing.
type Command struct {
	// Path is absolute, or a name that is looked up in the world's own PATH.
	Path string
	Args []string
	// Env is all of its environment, in the form of os.Environ. HOME, TMPDIR,
	// PATH and USER are set by the world where they are absent.
	Env []string
	// Dir is Workspace where it is empty.
	Dir string
}

// World is where one program runs at a time. It is not a wall by itself: the
// sandbox provider builds that. All methods are safe for concurrent use.
type World interface { //nolint:interfacebloat // one world, of which nobody needs a part
	// Start starts the program; the one before has ended. What that left running is
	// killed, and what nobody read of its output is lost. Errors: sandbox_evicted
	// where the world is gone, harness_options_invalid where the program cannot be
	// started at all, already_running where the one before still runs, sandbox_limit.
	Start(ctx context.Context, c Command) (Program, error)
	// KillAll ends every process of the world, and those that they start
	// meanwhile: SIGTERM to the program's group, SIGKILL to everything after
	// grace. It returns once nothing is left. No process is no error.
	KillAll(ctx context.Context, grace time.Duration) error
	// Freeze stops every process of the world, and Thaw lets them go on. What is
	// frozen writes no file: a world in which something runs all the same is ended,
	// which the program's Exit gives as its Reason. Errors: protocol, where that
	// has happened.
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	// WriteFile makes a file and the folders above it, under Home or Workspace.
	// One that is ReadOnly belongs to nobody that the program can be. Workspace itself
	// stays the program's: what stands directly in it can be moved away as a whole.
	WriteFile(ctx context.Context, f File, content io.Reader) error
	// Archive writes the named files of Home as one compressed archive of at most
	// maxBytes. Errors: state_too_large; protocol while a process of the world
	// runs unfrozen.
	Archive(ctx context.Context, p Paths, maxBytes int, w io.Writer) error
	// Restore unpacks an archive into Home. Whatever stands in it stays in Home.
	Restore(ctx context.Context, archive io.Reader) error
	// Reset ends every process, and empties Home, Workspace and Temp; ResetHome
	// leaves Workspace as it is.
	Reset(ctx context.Context) error
	ResetHome(ctx context.Context) error
	// Limits tells which limits of the world were hit since it began: "memory",
	// "pids", "storage", "cpu".
	Limits(ctx context.Context) ([]string, error)
	// Close gives the connection up. The world goes on until the sandbox ends.
	Close() error
}

// File is a file to make.
type File struct {
	// Path is absolute, under Home or Workspace.
	Path       string
	Executable bool
	ReadOnly   bool
}

// Paths says what is archived, by patterns of path.Match on slash-separated
// paths relative to Home; a pattern that names a folder means all in it.
type Paths struct {
	Include []string `json:"include"`
	Exclude []string `json:"exclude"`
}

// Program is a started program.
type Program interface {
	// Stdin and Stdout are the program's. What it writes to standard error goes to
	// the sandbox's log and nowhere else.
	Stdin() io.WriteCloser
	Stdout() io.Reader
	// Done is closed when the program's first process has ended.
	Done() <-chan struct{}
	// Exit says how it ended, after Done.
	Exit() Exit
}

// Exit is how a program ended.
type Exit struct {
	// Code is -1 after a signal, and where the world went with the program.
	Code int
	// Signal is its name, such as SIGKILL; "" for a normal exit.
	Signal string
	// Limit that most likely ended it, as Limits names it; "" for none.
	Limit string
	// Reason is a fixed sentence of the world, where that ended the program and nobody
	// had asked for it; "" else.
	Reason string
}
