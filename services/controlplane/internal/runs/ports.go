package runs

import (
	"context"
	"io"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// Files puts what came with a message into the file broker, and makes the
// handles of a run.
type Files interface {
	Put(ctx context.Context, env fence.Envelope, f InlineFile) (worker.File, error)
	// Uploads makes n handles, each for one new file of the run.
	Uploads(ctx context.Context, env fence.Envelope, n uint32) ([]worker.Upload, error)
	// Save stores a file for the conversation of the envelope, which names no run.
	// What is read of content is not kept in memory.
	Save(ctx context.Context, env fence.Envelope, head FileHead, content io.Reader) (StoredFile, error)
	// Handle makes a download handle of the run for a file of its conversation.
	Handle(ctx context.Context, env fence.Envelope, f StoredFile) (worker.File, error)
	// Stat describes a file, of whatever conversation. not_found.
	Stat(ctx context.Context, id string) (StoredFile, error)
	// Read sends n bytes of a file from offset on. What was sent before an error is
	// not to be believed.
	Read(ctx context.Context, f StoredFile, offset, n int64, send func([]byte) error) error
}

// Tools describes tools by id; those that cannot be had now are left out.
type Tools interface {
	ListTools(ctx context.Context, ids []string) (tools []worker.Tool, unavailable []string, err error)
}

// Agents gives versions of agents; *agents.Registry does.
type Agents interface {
	// Newest is for a conversation that begins. Errors: not_found,
	// dependency_unavailable.
	Newest(ctx context.Context, id string) (agents.Agent, error)
	// At is for one that has begun, which stays on its version. Errors: not_found,
	// dependency_unavailable.
	At(ctx context.Context, id string, version uint32) (agents.Agent, error)
}

// Leases gets workers for runs; *lease.Manager does.
type Leases interface {
	Acquire(ctx context.Context, req lease.Request) (lease.Held, error)
	Replace(ctx context.Context, rec binding.Record, profile string) (binding.Record, error)
	// ReplaceIdle replaces only where no run is active.
	ReplaceIdle(ctx context.Context, rec binding.Record, profile string) (binding.Record, error)
	Lifecycle(ctx context.Context, env fence.Envelope, instanceUID string) (worker.Token, error)
}

// Caller is who asks, after authentication. The subject never leaves the
// control plane and the brokers.
type Caller struct {
	Subject      string
	Organization string
}

// InlineFile is a file that came with a message, or one that the caller had stored
// for the conversation before.
type InlineFile struct {
	// ID of a stored file; the rest is empty then.
	ID       string
	Name     string
	MIMEType string
	Data     []byte
}
