package harness

import (
	"context"
	"encoding/json"
	"net/http"
)

// Model is a model endpoint that adds the credential outside. A client of the
// provider's own wire is built on HTTP and BaseURL; the run's authority is added
// to its requests by the transport.
type Model struct {
	HTTP    *http.Client
	BaseURL string
	Alias   string
}

// ToolCall names a call within its run.
type ToolCall struct {
	// CallID is unique in the run; the call happens at most once for it.
	CallID    string
	ToolID    string
	Arguments json.RawMessage
}

// ToolResult is what a tool answered.
type ToolResult struct {
	// Result is bounded JSON.
	Result json.RawMessage
	// IsError tells that the tool itself said that it failed.
	IsError bool
}

// ToolCaller calls tools through the ToolBroker.
type ToolCaller interface {
	// Call makes a call, at most once for its id in the run. Its errors are
	// *fault.Error; tool_outcome_unknown says that the tool may have acted.
	Call(ctx context.Context, c ToolCall) (ToolResult, error)
}

// Codec names a format of native state.
type Codec struct {
	Name    string
	Version uint32
}

// Head is the durable thread state that a turn begins on.
type Head struct {
	// Revision is 0 for a new thread.
	Revision uint64
	Payload  []byte
}

// ThreadState loads and commits the thread's state.
type ThreadState interface {
	Load(ctx context.Context, c Codec) (Head, error)
	// Commit writes the payload and moves the head from the revision. It covers
	// every draft that was emitted before, and ends the run as success: nothing
	// may be emitted afterwards. Errors: protocol where something that was emitted
	// is still open, revision_conflict, state_too_large, cancelled,
	// thread_durability_uncertain.
	Commit(ctx context.Context, c Codec, revision uint64, payload []byte) error
}

// Files reads the files of a turn.
type Files interface {
	// Read gives the whole content with its SHA-256 checked. Errors:
	// request_too_large for more than maxBytes, persistence_failed for what is
	// damaged, and those of the handle.
	Read(ctx context.Context, f File, maxBytes int) ([]byte, error)
}
