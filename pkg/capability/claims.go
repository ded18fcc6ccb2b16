package capability

import (
	"log/slog"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// Claims are what a capability says. Claims that [Verifier.Verify] returned are
// valid; Claims that a program put together are what [Claims.Validate] says.
type Claims struct {
	// ID is unique for each token (jti).
	ID string
	// Issuer is the capability service that signed (iss).
	Issuer string
	// Audience is the one kind of service that the token is for (aud).
	Audience Audience
	// Subject is the SPIFFE ID of who holds the token (sub): the sandbox, or the
	// service that got a narrower one in exchange for the sandbox's.
	Subject spiffeid.ID
	// Actor is the sandbox for which the service acts that holds a narrowed token
	// (act); zero in every other.
	Actor spiffeid.ID
	// IssuedAt, NotBefore and Expiry (iat, nbf, exp) are whole seconds. Expiry is
	// never after the deadline of the run.
	IssuedAt, NotBefore, Expiry time.Time
	// BindingID, Epoch and Generation name the lease (binding_id, epoch,
	// lease_generation).
	BindingID         string
	Epoch, Generation uint32
	// RunID names the run (run_id). It is empty only in a lifecycle capability.
	RunID string

	// Tools are exact tool ids (tools); ToolBroker only. Without any the token
	// opens the door and allows no call.
	Tools []string
	// ApproveTools are those of Tools whose calls a person must have approved, one
	// by one (approve_tools): what an agent's policy asks for beside the tool's own.
	ApproveTools []string
	// MemoryScopes are "user", "agent" or "organization" (memory_scopes); Memory
	// only, at least one.
	MemoryScopes []string
	// Handles are exact file handles (handles); FileBroker only, at least one, and
	// none in a narrowed token, which allows to store one result.
	Handles []string
	// ModelAlias is the alias of one model endpoint (model_alias); ModelProxy
	// only, required.
	ModelAlias string
}

// Lifecycle reports whether the capability names no run: it allows to cancel, to
// read the interrupt and to shut down, and not to bind, start or resume.
func (c Claims) Lifecycle() bool { return c.RunID == "" }

// Narrowed reports whether the capability came out of an exchange: a service
// holds it, for a sandbox, to do the one thing that the pair of its audience and
// the exchanged one is for.
func (c Claims) Narrowed() bool { return !c.Actor.IsZero() }

// Matches compares the capability with the envelope of the request that it came
// with. Binding, epoch, generation and run have to be equal; only a lifecycle
// capability for the harness worker matches whatever run of its lease the
// envelope names. The error is capability_scope. Whether the lease is the
// committed one is the fence's question, asked next.
func (c Claims) Matches(e fence.Envelope) error {
	switch {
	case c.BindingID == "" || c.Generation == 0, // the zero Claims match nothing
		c.BindingID != e.BindingID, c.Epoch != e.Epoch, c.Generation != e.Generation:
		return fault.New(fault.CapabilityScope, "capability.Matches")
	case c.Lifecycle() && c.Audience == HarnessWorker:
		return nil
	case c.Lifecycle(), c.RunID != e.RunID:
		return fault.New(fault.CapabilityScope, "capability.Matches")
	default:
		return nil
	}
}

// LogValue leaves out everything but what finds the token in the audit log of
// the capability service.
func (c Claims) LogValue() slog.Value {
	return slog.GroupValue(slog.String("jti", c.ID), slog.String("aud", string(c.Audience)))
}
