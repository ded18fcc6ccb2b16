// Package sandbox says what the control plane asks of a sandbox provider: an
// exclusive, disposable instance for each claim, and nothing shared.
package sandbox

import (
	"context"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Claim asks for one instance. Its name is a digest of binding and generation,
// so the same claim made again is the same claim.
type Claim struct {
	Name string
	// Profile is the operator's name for what is claimed.
	Profile string
	// Harness is the id of the harness that must run inside.
	Harness string
}

// Instance is what a claim was given. Identity and configuration reach it
// afterwards, through bind.
type Instance struct {
	ClaimName string
	// ClaimUID is the provider's own id of the claim.
	ClaimUID string
	// SandboxUID is the provider's own id of what stands between the claim and the
	// instance, where there is such a thing.
	SandboxUID string
	// UID of the instance: the pod UID, or random for each process.
	UID string
	// Address is https://host:port or unix:///path.
	Address string
	// ID is the only identity that is accepted at the address.
	ID spiffeid.ID
	// ImageDigest is sha256:… of what runs inside.
	ImageDigest string
	// PID of the instance where it is a process of this machine, else 0.
	PID int
}

// Limit names the bound of a sandbox that ended it.
type Limit string

// The limits. The empty one is none: the instance went away for another reason.
const (
	LimitMemory   Limit = "memory"
	LimitPIDs     Limit = "pids"
	LimitCPU      Limit = "cpu"
	LimitStorage  Limit = "storage"
	LimitLifetime Limit = "lifetime"
)

// Exit says that an instance is gone.
type Exit struct {
	ClaimName string
	UID       string
	// Limit that ended it, or "" where none did.
	Limit Limit
}

// Provider makes and ends instances. All methods are safe for concurrent use
// and for repetition.
type Provider interface {
	// Claim gives the instance of a claim, made if there is none. ctx bounds the
	// wait and not the instance: what is being made when ctx ends is there for the
	// next call with that name, or for Release. An instance that has ended is never
	// given, and no other is made in its place before it was cleaned up. Errors:
	// sandbox_capacity, sandbox_not_ready, worker_mismatch where there is no such
	// profile or it runs another harness, and those of ctx.
	Claim(ctx context.Context, c Claim) (Instance, error)
	// Room says whether a claim that was not made yet would be refused for want of
	// capacity, as far as that is known without making it. nil promises nothing. It
	// claims nothing. Errors: sandbox_capacity.
	Room(ctx context.Context, c Claim) error
	// Release ends the instance of a claim and waits, within ctx, until nothing is
	// left of it; when ctx ends first it goes on ending. A claim that is not there
	// is released already.
	Release(ctx context.Context, claimName string) error
	// Alive reports whether the claim still has this very instance and nobody has
	// released it.
	Alive(ctx context.Context, claimName, uid string) (bool, error)
	// Exits tells once of each instance that went away without Release. Who reads
	// too slowly misses some, and finds out by Alive. It is closed when the provider
	// is.
	Exits() <-chan Exit
	// List gives all instances of this provider that run. A claim without a running
	// instance may be among them, and has no UID.
	List(ctx context.Context) ([]Instance, error)
	// Weaknesses names the isolation layers that are missing; empty is what
	// production asks for.
	Weaknesses() []string
	// Close ends the provider. Instances that are its alone end with it, and are
	// waited for; those that others share, or that a cluster keeps, live on, and are
	// there for the next provider by the same claim names.
	Close() error
}
