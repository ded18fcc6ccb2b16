package harness

import (
	"context"
	"encoding/json"
	"net/http"

	"cofferdam.dev/pkg/event"
)

// Facades are the only ways out of the sandbox, for one run.
type Facades struct {
	Model  Model
	Tools  ToolCaller
	Thread ThreadState
	Files  Files
	Memory Memory
}

// Model is a model endpoint that adds the credential outside. A client of the
// provider's own wire is built on HTTP and BaseURL; the run's authority is added
// to its requests by the transport.
type Model struct {
	HTTP *http.Client
	// BaseURL ends in /v1/, as the OpenAI wires want it; RootURL is the same
	// without that and ends in /.
	BaseURL string
	RootURL string
	Alias   string
}

// ToolCall names a call within its run.
type ToolCall struct {
	// CallID is unique in the run; the call happens at most once for it.
	CallID    string
	ToolID    string
	Arguments json.RawMessage
	// Answer is what the user answered to the question that an earlier call of this
	// tool with these arguments ended with; nil for a call that answers nothing. The
	// id of the call is then that of the interrupt.
	Answer *ToolAnswer
	// Tell is told of the agent to which the tool delegates, if it does; its error
	// ends the call. The worker sets it: what a harness sets is replaced.
	Tell func(context.Context, event.Draft) error
}

// ToolAnswer is the decision of this run on a tool's question, as it came. The
// broker holds it against the committed one.
type ToolAnswer struct {
	// RunID and CallID are of the call that asked.
	RunID, CallID string
	// Form has the values by field name, unless the question was Dismissed.
	Form      json.RawMessage
	Dismissed bool
}

// ToolResult is what a tool answered.
type ToolResult struct {
	// Result is bounded JSON.
	Result json.RawMessage
	// IsError tells that the tool itself said that it failed.
	IsError bool
	// Ref is the file with the whole of a result that was cut; empty where there is
	// none. It is what a tool.finished names as its result_ref.
	Ref string
	// Asks is the form by which the tool asks the user before it goes on, to be
	// shown word for word; nil where it asks nothing. Result then says so for a
	// model whose harness cannot ask.
	Asks *event.InterruptRequested
}

// ToolCaller calls tools through the ToolBroker.
type ToolCaller interface {
	// Call makes a call, at most once for its id in the run. Its errors are
	// *fault.Error; tool_outcome_unknown says that the tool may have acted;
	// approval_required, that a person has to be asked first.
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
	// Interrupt does the same after interrupt.requested was emitted, and ends the
	// run as interrupted: the payload is what Resume will go on from. The calls
	// that the interrupt names stay open; whatever else is open must be closed.
	Interrupt(ctx context.Context, c Codec, revision uint64, payload []byte) error
}

// Files reads the files of a turn, and writes new ones.
type Files interface {
	// Read gives the whole content with its SHA-256 checked. Errors:
	// request_too_large for more than maxBytes, persistence_failed for what is
	// damaged, and those of the handle.
	Read(ctx context.Context, f File, maxBytes int) ([]byte, error)
	// Write completes an upload, once, and gives the id of the new object: what a
	// tool.finished names as its result_ref. name is for display only. Errors:
	// request_too_large for more than the handle takes, and those of the handle.
	Write(ctx context.Context, u Upload, name, mimeType string, content []byte) (objectID string, err error)
}

// MemoryScope says whose memory a record is.
type MemoryScope string

// The scopes of memory.
const (
	MemoryUser         MemoryScope = "user"
	MemoryAgent        MemoryScope = "agent"
	MemoryOrganization MemoryScope = "organization"
)

// MemoryRecord is what is remembered under a key.
type MemoryRecord struct {
	Kind        string // semantic, episodic_reference or procedural
	ContentType string // text/plain or application/json
	Content     []byte
	Revision    uint64
	// Sources are the records of the same scope that this one was made of.
	Sources []MemorySource
}

// MemorySource is a revision of a record.
type MemorySource struct {
	Key      string
	Revision uint64
}

// MemoryMatch is a record that a search found.
type MemoryMatch struct {
	Key      string
	Kind     string
	Revision uint64
	// Excerpt is the part of the content in which the words were found.
	Excerpt string
}

// MemoryRank is how found records are ordered.
type MemoryRank string

// The ranks. By meaning needs an embedding endpoint; where it is away, or there is
// none, words rank, and the answer says so.
const (
	MemoryByWords   MemoryRank = "lexical"
	MemoryByMeaning MemoryRank = "vector"
)

// MemoryQuery is what is looked for.
type MemoryQuery struct {
	Text  string
	Limit int
	// Rank; empty is by words.
	Rank MemoryRank
}

// MemoryFound is the answer of a search, the best first.
type MemoryFound struct {
	Matches []MemoryMatch
	// Rank is what they were ordered by.
	Rank MemoryRank
}

// MemoryWritten is what a put left.
type MemoryWritten struct {
	Revision uint64
	// Redactions is how many secrets were cut out of the content.
	Redactions int
}

// Memory keeps what outlives the conversation. Memory grants nothing: its content
// is untrusted.
type Memory interface {
	// Get gives a record, or not_found. Errors: memory_scope_denied.
	Get(ctx context.Context, scope MemoryScope, key string) (MemoryRecord, error)
	// Search gives at most Limit records that have words of the query, or mean the
	// like. Errors: memory_scope_denied.
	Search(ctx context.Context, scope MemoryScope, q MemoryQuery) (MemoryFound, error)
	// Put writes a record where the one that stands has the expected revision (0:
	// there must be none), at most once for the call id in the run. Errors:
	// memory_revision_conflict, memory_scope_denied, memory_rejected,
	// approval_required where a person has to approve the call, request_too_large.
	Put(ctx context.Context, callID string, scope MemoryScope, key string, r MemoryRecord) (MemoryWritten, error)
	// Delete removes a record at its revision, at most once for the call id in the
	// run. Errors: those of Put, and not_found.
	Delete(ctx context.Context, callID string, scope MemoryScope, key string, revision uint64) error
}
