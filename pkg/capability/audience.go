package capability

import "slices"

// Audience is the kind of service that a capability is for. A capability has
// exactly one.
type Audience string

// The audiences, and which claims belong to each besides those that all have.
const (
	// HarnessWorker is the worker itself: what the control plane presents to it.
	// No further claims. Without a run it is a lifecycle capability.
	HarnessWorker Audience = "harness-worker"
	// ToolBroker takes Tools.
	ToolBroker Audience = "tool-broker"
	// ThreadState has no further claims.
	ThreadState Audience = "thread-state"
	// Memory takes MemoryScopes.
	Memory Audience = "memory"
	// FileBroker takes Handles.
	FileBroker Audience = "file-broker"
	// ModelProxy takes ModelAlias.
	ModelProxy Audience = "model-proxy"
)

// Audiences lists every audience.
func Audiences() []Audience {
	return []Audience{HarnessWorker, ToolBroker, ThreadState, Memory, FileBroker, ModelProxy}
}

// Known reports whether a is one of [Audiences].
func (a Audience) Known() bool { return slices.Contains(Audiences(), a) }
