// Package files moves whole objects through scoped, expiring handles: the
// contract's "Files".
//
// A worker names no path, no bucket and no object. It holds handles, each for
// one binding, epoch, generation and run, one object or one upload, one
// direction, a size, and an expiry that is not after the run's deadline; and its
// capability lists them. Contents have a SHA-256 that is checked here and by the
// other side. What is not complete is not visible.
//
// # Writes
//
// The completion of an upload is an admitted effect of its run (write 4 of the
// contract's fencing file): it happens at most once for its key, and not for a
// lease that was replaced. What the control plane stores as itself for a run (an
// input file, a handle) is staged, then committed state is read again, and only
// then it is made visible and its id given away. Epoch and generation only rise,
// so a lease that is current after the staging was current at the staging.
//
// # Contents of agents
//
// The skills and files of agents belong to no conversation. The control plane puts each
// under its SHA-256, once, and says when a version of an agent names it; a handle of a run
// reads those of its agent. There is nothing to fence: a content is what its name says,
// whoever put it and when.
//
// # What is left behind
//
// An attempt that ends in order takes its staged object with it. What one leaves
// that is killed, and what nothing refers to any more, [Service.Collect] removes.
package files

import (
	"context"
	"log/slog"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// Config of a Service.
type Config struct {
	Guard     *fence.Guard
	Effects   *binding.Effects
	Catalogue Catalogue
	Blobs     blob.Store
	// Records have the epochs of conversations.
	Records fence.Reader
	// CollectAfter is how long a file is kept that nothing refers to.
	CollectAfter time.Duration
	// QuotaBytes is what the objects of one binding may have together.
	QuotaBytes int64
	Logger     *slog.Logger
	// Now is time.Now outside of tests.
	Now func() time.Time
}

// Service has the operations. It is safe for concurrent use.
type Service struct {
	guard     *fence.Guard
	effects   *binding.Effects
	catalogue Catalogue
	blobs     blob.Store
	quota     int64
	logger    *slog.Logger
	now       func() time.Time

	records      fence.Reader
	collectAfter time.Duration
}

// New makes the service.
func New(cfg Config) *Service {
	return &Service{
		guard: cfg.Guard, effects: cfg.Effects, catalogue: cfg.Catalogue, blobs: cfg.Blobs,
		quota: cfg.QuotaBytes, logger: cfg.Logger, now: cfg.Now,
		records: cfg.Records, collectAfter: cfg.CollectAfter,
	}
}

// failed is the fault for a store that failed: nothing was acknowledged, and the
// same request with the same key may be sent again.
func failed(ctx context.Context, err error, op string) error {
	if ctx.Err() != nil {
		return fault.From(context.Cause(ctx), op)
	}
	return fault.Wrap(err, fault.PersistenceFailed, op)
}
