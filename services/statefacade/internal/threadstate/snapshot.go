package threadstate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/statefacade/internal/digest"
)

// Bounds of thread state.
const (
	// MaxSnapshotBytes bounds one snapshot.
	MaxSnapshotBytes = 1 << 20
	// MaxSnapshotsPerRun bounds how many snapshots one run may leave.
	MaxSnapshotsPerRun = 16
)

// Errors of a Snapshots store. Everything else is a failure of the store, whose
// outcome may be unknown.
var (
	// ErrNoSnapshot says that there is no such snapshot, or that it was never
	// confirmed.
	ErrNoSnapshot = errors.New("threadstate: no such snapshot")
	// ErrFull says that the run has left as many snapshots as it may.
	ErrFull = errors.New("threadstate: the run has too many snapshots")
)

// Codec names a format of native state. State is never translated.
type Codec struct {
	Name    string
	Version uint32
}

// Owner is the run, under one generation, that wrote a snapshot. No other may
// make it a head.
type Owner struct {
	BindingID  string
	Epoch      uint32
	Generation uint32
	RunID      string
}

func ownerOf(e fence.Envelope) Owner {
	return Owner{BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID}
}

// ref is the same for the same key, so that a repeated write meets the first one.
func (o Owner) ref(key string) string {
	return "snap_" + digest.Of(o.BindingID, fmt.Sprint(o.Epoch), fmt.Sprint(o.Generation), o.RunID, key)
}

// Info is a snapshot without its payload.
type Info struct {
	Ref    string
	Owner  Owner
	Codec  Codec
	SHA256 [sha256.Size]byte
}

// Snapshot is opaque native state.
type Snapshot struct {
	Info
	Payload []byte
}

// Snapshots keeps snapshots. It knows nothing of leases, so a write takes two
// steps with a look at committed state between them: a staged snapshot can be
// met by nobody; a confirmed one is the pending snapshot of the contract, which
// means nothing until a head names it. All methods are safe for concurrent use,
// also from several processes, and end with their context.
type Snapshots interface {
	// Stage keeps s where none of its Ref stands, and gives the one that stands
	// afterwards, whatever its state: it may have other content. ErrFull where
	// the run has most snapshots already, of any generation and state.
	Stage(ctx context.Context, s Snapshot, most int) (stands Info, err error)
	// Confirm makes a staged snapshot pending. A repeat is harmless.
	// ErrNoSnapshot where none of the Ref stands.
	Confirm(ctx context.Context, ref string) error
	// Drop removes a snapshot that was staged and not confirmed, and leaves every
	// other one alone. A repeat is harmless.
	Drop(ctx context.Context, ref string) error
	// Stat gives a confirmed snapshot without its payload, or ErrNoSnapshot.
	Stat(ctx context.Context, ref string) (Info, error)
	// Load gives a confirmed snapshot, or ErrNoSnapshot.
	Load(ctx context.Context, ref string) (Snapshot, error)
}
