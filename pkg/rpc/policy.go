package rpc

import (
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/identity"
)

// FenceMode says what a request's envelope must match before its handler runs.
type FenceMode int

// The fence modes. In every mode but NoFence a request must carry an envelope;
// with a capability the envelope must be the one that it names, in every mode.
const (
	// NoFence leaves committed state alone: for calls that change nothing, and
	// for the bind of a worker, which has no state yet.
	NoFence FenceMode = iota
	// RunFence asks for the committed binding, epoch, generation and run.
	RunFence
	// LeaseFence asks for the committed binding, epoch and generation.
	LeaseFence
	// AnyFence is RunFence for an envelope that names a run, else LeaseFence.
	AnyFence
)

// DefaultMaxBytes bounds one message where a policy does not say otherwise.
const DefaultMaxBytes = 1 << 20

// Policy says who may call a procedure, and with what.
type Policy struct {
	// Callers who may call; an empty list refuses everybody.
	Callers identity.AllowList
	// Audience of the capability that must come with the request; empty where
	// the caller acts as itself.
	Audience capability.Audience
	// Subject of the capability. Zero is the caller: a capability is worth
	// nothing without its holder's key. A worker, which the control plane calls,
	// asks for capabilities of its own instead.
	Subject spiffeid.ID
	Fence   FenceMode
	// MaxBytes of one message; 0 is DefaultMaxBytes.
	MaxBytes int
}

func (p Policy) maxBytes() int {
	if p.MaxBytes > 0 {
		return p.MaxBytes
	}
	return DefaultMaxBytes
}
