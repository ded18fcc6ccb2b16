// Package threadstate keeps the opaque state of one binding and epoch: the
// contract's "Thread state", and write 5 of its fencing file.
//
// A turn loads the durable head, runs, writes its state as a pending snapshot,
// and commits: head, revision and the run's end move in one write of the
// committed record, which names epoch, generation and run. The head in the
// record is the truth; what the snapshot store holds besides is inert.
//
// # Writes that are not in the record
//
// A snapshot is a row of another store, which cannot be compared-and-set with
// the record. It is therefore staged, then committed state is read again, and
// only then it is confirmed and its reference given away. Epoch and generation
// only rise, and a run that is over stays over: a lease that is current after the
// staging was current at the staging. A replaced lease is stale_lease, and what
// was staged is dropped.
//
// A payload over MaxInlineBytes stands in the object store, where the entry that
// was staged before says.
//
// # What is left behind
//
// A snapshot that lost (its run ended without committing it, or a later head took
// its place) is removed when the binding's next one is written, and by [Service.Sweep].
// Write 5 allows that only after a majority read has shown that its run is over and
// that it is not the head. What a run can leave until then is bounded by
// MaxSnapshotsPerRun, MaxWritesPerMinute and MaxKeptBytes.
package threadstate

import (
	"context"
	"log/slog"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// Service has the four operations. It is safe for concurrent use.
type Service struct {
	writer    *binding.Writer
	guard     *fence.Guard
	snapshots Snapshots
	blobs     blob.Store
	logger    *slog.Logger
	now       func() time.Time
}

// New makes the service. Payloads that are large stand in blobs. now is time.Now
// outside of tests.
func New(w *binding.Writer, s Snapshots, blobs blob.Store, logger *slog.Logger, now func() time.Time) *Service {
	return &Service{writer: w, guard: fence.NewGuard(w, now), snapshots: s, blobs: blobs, logger: logger, now: now}
}

// lost is the fault for a snapshot store that failed: nothing was acknowledged,
// and the same request with the same key may be sent again.
func lost(ctx context.Context, err error, op string) error {
	return failed(ctx, err, fault.PersistenceFailed, op)
}

// away is the fault for a record that cannot be read.
func away(ctx context.Context, err error, op string) error {
	return failed(ctx, err, fault.DependencyUnavailable, op)
}

func failed(ctx context.Context, err error, code fault.Code, op string) error {
	if ctx.Err() != nil {
		return fault.From(context.Cause(ctx), op)
	}
	return fault.Wrap(err, code, op)
}
