package runnerproto

import (
	"errors"

	"cofferdam.dev/services/worker/internal/hosted"
)

// Opening is the first frame of a connection, from the worker.
type Opening struct {
	Version int `json:"version"`
	// Session is empty on a control connection, and what it was given on a stream.
	Session string `json:"session,omitempty"`
	// Stream names a stream in the requests of its session; never 0 twice.
	Stream uint64 `json:"stream,omitempty"`
}

// Opened answers an Opening.
type Opened struct {
	Error *Error `json:"error,omitempty"`
	// Session and World are there on a control connection.
	Session string `json:"session,omitempty"`
	World   *World `json:"world,omitempty"`
}

// World is what a runner says about the world that it runs. What is false is a
// layer that is missing.
type World struct {
	// OwnProcesses: the runner is process 1, so that nothing can leave its tree.
	OwnProcesses bool `json:"own_processes"`
	// OwnUser: the program runs under another user than the runner, without
	// capabilities; what is written read-only stays what it is.
	OwnUser bool `json:"own_user"`
	// Counters are the limits whose counters can be read: "memory", "pids".
	Counters []string `json:"counters,omitempty"`
	// Folders as the program sees them. They are those of package hosted, but for a
	// runner that has no file system of its own.
	Home      string `json:"home"`
	Workspace string `json:"workspace"`
	Temp      string `json:"temp"`
}

// Request is one call. Exactly one of the pointers is set, and says which.
type Request struct {
	// ID comes back in the reply. It is not used by another open request.
	ID      uint64   `json:"id"`
	Start   *Start   `json:"start,omitempty"`
	Wait    *Wait    `json:"wait,omitempty"`
	Kill    *Kill    `json:"kill,omitempty"`
	Freeze  *Nothing `json:"freeze,omitempty"`
	Thaw    *Nothing `json:"thaw,omitempty"`
	Write   *Write   `json:"write,omitempty"`
	Archive *Archive `json:"archive,omitempty"`
	Restore *Restore `json:"restore,omitempty"`
	Reset   *Reset   `json:"reset,omitempty"`
	Limits  *Nothing `json:"limits,omitempty"`
	// Cancel takes back the request of this ID. It has no reply of its own; that
	// request still has one.
	Cancel *Nothing `json:"cancel,omitempty"`
}

// Nothing is what a call without parameters gives.
type Nothing struct{}

// Reset ends every process and empties the program's folders.
type Reset struct {
	KeepWorkspace bool `json:"keep_workspace,omitempty"`
}

// Start starts a program. Both streams belong to it from then on: one that
// breaks off before its end ends the program.
type Start struct {
	Path   string   `json:"path"`
	Args   []string `json:"args,omitempty"`
	Env    []string `json:"env,omitempty"`
	Dir    string   `json:"dir,omitempty"`
	Stdin  uint64   `json:"stdin"`
	Stdout uint64   `json:"stdout"`
}

// Wait is answered when the program has ended.
type Wait struct {
	Program uint64 `json:"program"`
}

// Kill ends every process.
type Kill struct {
	// GraceMS is in milliseconds, at most MaxGrace.
	GraceMS int64 `json:"grace_ms"`
}

// Write makes a file of what comes on the stream.
type Write struct {
	Path       string `json:"path"`
	Executable bool   `json:"executable,omitempty"`
	ReadOnly   bool   `json:"read_only,omitempty"`
	Stream     uint64 `json:"stream"`
}

// Archive writes an archive to the stream.
type Archive struct {
	Include  []string `json:"include"`
	Exclude  []string `json:"exclude,omitempty"`
	MaxBytes int64    `json:"max_bytes"`
	Stream   uint64   `json:"stream"`
}

// Restore unpacks the archive that comes on the stream.
type Restore struct {
	Stream uint64 `json:"stream"`
}

// Reply answers a Request.
type Reply struct {
	ID uint64 `json:"id"`
	// Error is all that a failed call has.
	Error   *Error   `json:"error,omitempty"`
	Started *Started `json:"started,omitempty"`
	Ended   *Ended   `json:"ended,omitempty"`
	Hit     *Hit     `json:"hit,omitempty"`
}

// Started answers Start.
type Started struct {
	Program uint64 `json:"program"`
}

// Ended answers Wait.
type Ended struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	Limit  string `json:"limit,omitempty"`
	// Reason is why the runner ended it: ReasonRan, or "".
	Reason string `json:"reason,omitempty"`
}

// ReasonRan: something of the program ran while it was frozen.
const ReasonRan = "ran while it was frozen"

// Exit is the same in the words of the contract.
func (e Ended) Exit() hosted.Exit {
	return hosted.Exit{Code: e.Code, Signal: e.Signal, Limit: e.Limit, Reason: e.Reason}
}

// Hit answers Limits.
type Hit struct {
	Limits []string `json:"limits"`
}

var errNotOne = errors.New("runnerproto: a request is exactly one call")

// Validate checks what the types do not say.
func (r *Request) Validate() error {
	n := 0
	for _, set := range []bool{
		r.Start != nil, r.Wait != nil, r.Kill != nil, r.Freeze != nil, r.Thaw != nil, r.Write != nil,
		r.Archive != nil, r.Restore != nil, r.Reset != nil, r.Limits != nil, r.Cancel != nil,
	} {
		if set {
			n++
		}
	}
	if n != 1 {
		return errNotOne
	}
	if k := r.Kill; k != nil && (k.GraceMS < 0 || k.GraceMS > MaxGrace.Milliseconds()) {
		return errors.New("runnerproto: grace out of range")
	}
	return nil
}
