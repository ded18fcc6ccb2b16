// Package harness is the contract between the worker and an adapter, which
// hosts one harness: the Harness Adapter contract, version 1. An adapter knows
// nothing of HTTP, SSE, databases, bearer tokens, or another adapter's state.
package harness

import (
	"context"
	"encoding/json"

	"cofferdam.dev/pkg/event"
)

// ContractVersion of adapters that this worker hosts.
const ContractVersion = 1

// Descriptor is what an adapter says of itself.
type Descriptor struct {
	// ID is ^[a-z][a-z0-9_]{1,63}$.
	ID             string
	AdapterVersion string
	// ExecutionMode is sandbox_pod or provider_managed.
	ExecutionMode string
	// OptionsSchema is the JSON Schema of the adapter's options.
	OptionsSchema json.RawMessage
	// Capabilities has a level for each key of the contract. They are what the
	// conformance suite has seen, not what the adapter would like.
	Capabilities Capabilities
	// RawCredential says why the harness needs a raw credential inside, which a
	// worker refuses to be bound for; "" is what every adapter should have.
	RawCredential string
}

// Adapter hosts one harness.
type Adapter interface {
	Descriptor() Descriptor
	// Health is bounded, has no side effects, and makes no model or tool call.
	Health(ctx context.Context) error
	// Initialize builds the runtime; safe to repeat. Errors:
	// harness_options_invalid, worker_mismatch.
	Initialize(ctx context.Context, c Construction) (Runtime, error)
}

// Runtime is an initialized harness. One mutating operation at a time.
type Runtime interface {
	// Stream runs one turn: it emits drafts between run.started and the terminal,
	// which the worker itself makes. It returns once the harness has really
	// stopped, also when ctx ends, which is how a run is cancelled and how its
	// deadline comes. A run that succeeds has committed its thread state with
	// Commit, and one that waits for a person with Interrupt; one that has not is
	// an error, whatever Stream returns. Its error is a *fault.Error whose code
	// ends the run.
	Stream(ctx context.Context, t Turn, f Facades, emit Emitter) (Result, error)
	// Resume goes on where an interrupt was committed, as Stream otherwise. It may
	// come to a runtime that has never seen the run that was interrupted. The
	// decision fits the interrupt: the worker has checked it.
	Resume(ctx context.Context, d Decision, f Facades, emit Emitter) (Result, error)
	// Cleanup is repeatable, ends within ctx, and leaves no process, connection,
	// file or goroutine.
	Cleanup(ctx context.Context) error
}

// Result is how a turn ended that committed its state.
type Result struct {
	// StopReason is why the model stopped, such as "stop". What is no id of the
	// contract becomes "unknown". It means nothing for an interrupted run.
	StopReason string
}

// Emitter takes drafts, of several goroutines at once if need be.
type Emitter interface {
	// Emit puts a draft into the stream. It blocks while the stream is held back.
	// Errors: protocol for a draft that breaks the lifecycle, which also ends the
	// run; cancelled and deadline_exceeded.
	Emit(ctx context.Context, d event.Draft) error
}
