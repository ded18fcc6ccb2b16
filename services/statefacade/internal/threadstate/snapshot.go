package threadstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/statefacade/internal/digest"
)

// Bounds of thread state.
const (
	// MaxSnapshotBytes bounds one snapshot.
	MaxSnapshotBytes = blob.MaxBytes
	// MaxInlineBytes is what stands in the snapshot store itself; larger payloads
	// stand in the object store.
	MaxInlineBytes = 1 << 20
	// MaxSnapshotsPerRun bounds how many snapshots one run may leave.
	MaxSnapshotsPerRun = 16
	// MaxWritesPerMinute bounds how many snapshots of one binding are written within
	// a minute: far more than turns of a conversation can follow one another.
	MaxWritesPerMinute = 1200
	// MaxKeptBytes bounds the snapshots of one binding together: those of the last
	// minute, of its run, and its head.
	MaxKeptBytes = 1 << 30
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

// Info is what a snapshot is known by: the same write again has the same.
type Info struct {
	Ref   string
	Owner Owner
	Codec Codec
	blob.Content
}

// Entry is a snapshot without its payload.
type Entry struct {
	Info
	// Blob is the key of the payload in the object store; empty where it stands
	// in the snapshot store.
	Blob string
	// Confirmed says that it is pending, or the head.
	Confirmed bool
	// At is when it was staged, to the microsecond.
	At time.Time
}

// Snapshot is opaque native state.
type Snapshot struct {
	Entry
	// Payload, where Blob is empty.
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
	Stage(ctx context.Context, s Snapshot, most int) (stands Entry, err error)
	// Confirm makes a staged snapshot pending. A repeat is harmless.
	// ErrNoSnapshot where none of the Ref stands.
	Confirm(ctx context.Context, ref string) error
	// Drop removes a snapshot that was staged and not confirmed, and leaves every
	// other one alone. A repeat is harmless.
	Drop(ctx context.Context, ref string) error
	// Stat gives a confirmed snapshot without its payload, or ErrNoSnapshot.
	Stat(ctx context.Context, ref string) (Entry, error)
	// Load gives a confirmed snapshot, or ErrNoSnapshot.
	Load(ctx context.Context, ref string) (Snapshot, error)
	Collection
}

// Collection is what finds and removes snapshots that lost.
type Collection interface {
	// List gives all snapshots of a binding, of every state, the oldest first.
	List(ctx context.Context, bindingID string) ([]Entry, error)
	// Remove removes one of any state. A repeat is harmless.
	Remove(ctx context.Context, ref string) error
	// Unsettled gives the bindings, in the order of their ids and after one of
	// them, that have a snapshot from before a time which was not settled.
	Unsettled(ctx context.Context, before time.Time, after string, limit int) ([]string, error)
	// Settle says that a snapshot was looked at and stays until its binding has a
	// newer one. A repeat is harmless.
	Settle(ctx context.Context, ref string) error
}
