// Package worker says what the control plane asks of the worker in a sandbox:
// the operations of the Sandbox Worker Protocol v1, free of any wire.
package worker

import (
	"context"
	"crypto/sha256"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// Dialer makes clients of the workers in sandboxes. A client accepts exactly
// the identity of its instance: an address that was used again leads to
// another one.
type Dialer interface {
	Dial(in sandbox.Instance) (Client, error)
}

// Client is one worker. Its errors are *fault.Error.
type Client interface {
	// Ready needs mutual TLS only.
	Ready(ctx context.Context) (Ready, error)
	// Bind takes the run's capability for harness-worker.
	Bind(ctx context.Context, token string, b Binding) error
	// Start takes the run's capability for harness-worker.
	Start(ctx context.Context, token string, t Turn) (Stream, error)
	// Resume takes the run's capability for harness-worker.
	Resume(ctx context.Context, token string, r Resume) (Stream, error)
	// Cancel takes a lifecycle capability.
	Cancel(ctx context.Context, token string, env fence.Envelope, reason string) (Cancelled, error)
	// Close gives up idle connections.
	Close()
}

// Ready is the worker's description of itself.
type Ready struct {
	Ready            bool
	ProtocolVersions []uint32
	HarnessID        string
	AdapterVersion   string
	ImageDigest      string
	BootNonce        string
	Bound            bool
}

// Binding is the immutable construction data of a worker.
type Binding struct {
	Envelope       fence.Envelope
	ConversationID string
	Expected       Ready
	Agent          Agent
	Tools          []Tool
	Endpoints      Endpoints
	Limits         Limits
	Tokens         []Token
	Interrupts     InterruptPolicy
	Middleware     []Middleware
	MemoryScopes   []string
	// Skills and Files are materialized before the harness is built.
	Skills, Files []ManifestFile
}

// ManifestFile is a file of the agent behind a read handle.
type ManifestFile struct {
	Path     string
	Handle   string
	Size     uint64
	SHA256   [sha256.Size]byte
	MIMEType string
}

// InterruptPolicy says what a harness may ask a person for.
type InterruptPolicy struct{ FormInput, ToolApproval bool }

// Middleware is one portable step; Options are one JSON object.
type Middleware struct {
	Name    string
	Options []byte
}

// Agent is the normalized configuration of agent and model.
type Agent struct {
	ID             string
	Version        uint32
	Name           string
	HarnessOptions []byte
	Model          Model
	Prompt         string
}

// Model is the normalized configuration of the agent's model.
type Model struct {
	Alias           string
	Wire            string
	MaxOutputTokens uint32
	ContextTokens   uint32
	Images          bool
	Documents       bool
}

// Tool is a portable descriptor.
type Tool struct {
	ID          string
	OfferedName string
	Description string
	InputSchema []byte
	// ApprovalRequired asks a person before each call.
	ApprovalRequired bool
	// ReadOnly was declared by the operator.
	ReadOnly bool
	// Delegates says that a call lets another agent work.
	Delegates bool
}

// Endpoints are the only addresses that a worker may call.
type Endpoints struct {
	ToolBroker, ThreadState, Memory, FileBroker, ModelProxy rpc.Endpoint
}

// Limits bound one run.
type Limits struct {
	MaxModelCalls uint32
	MaxToolCalls  uint32
	MaxStateBytes uint32
	ShutdownGrace time.Duration
}

// Token is a capability for one audience. It is held in memory only.
type Token struct {
	Audience string
	Token    string
	ID       string
}

// Turn is one turn. Tokens are empty for the run that the worker was bound for.
type Turn struct {
	Envelope       fence.Envelope
	ConversationID string
	Message        string
	Files          []File
	Uploads        []Upload
	ClientContext  []byte
	Tokens         []Token
}

// Resume is a decision on a committed interrupt, in the run that carries it out.
type Resume struct {
	Envelope       fence.Envelope
	ConversationID string
	// Interrupt is the payload of interrupt.requested as it stands in the log.
	Interrupt   []byte
	InterruptID string
	Revision    uint64
	Decision    event.ResumeDecision
	// Carried are the calls that count as started besides those that the interrupt
	// names.
	Carried []string
	Uploads []Upload
	Tokens  []Token
}

// Upload is a handle for one file that does not exist yet.
type Upload struct {
	Handle   string
	MaxBytes uint64
}

// File is a file behind a download handle.
type File struct {
	Handle      string
	DisplayName string
	MIMEType    string
	Size        uint64
}

// Cancelled is what a worker knows when it answers a cancel.
type Cancelled struct {
	// Active tells whether the run was active when the request came.
	Active bool
	// Stopped tells whether the harness has stopped.
	Stopped bool
}

// Stream is the lifecycle of one run. Next ends with io.EOF after the terminal.
type Stream interface {
	Next() (Frame, error)
	Close() error
}

// Frame is what a worker sends at once.
type Frame struct {
	Envelope fence.Envelope
	// CapabilityID is the jti of the capability that bound the worker.
	CapabilityID string
	BootNonce    string
	Events       []event.Event
	// Bytes is how long it was on the wire.
	Bytes int
}
