// Package runs drives runs: it starts them, takes their events into the
// committed log, decides with the store how they end, and concludes what is
// ending (the contract's fencing file).
package runs

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// Defaults of a Service.
const (
	DefaultBeatEvery     = 2 * time.Second
	DefaultTakeOverAfter = 10 * time.Second
	DefaultCancelGrace   = 5 * time.Second
	DefaultExitPatience  = time.Second
	DefaultReconcile     = time.Second
	DefaultIdleAfter     = 15 * time.Minute
	DefaultTendEvery     = 30 * time.Second
	DefaultForgetEvery   = time.Hour
)

// Config of a Service.
type Config struct {
	Writer   *binding.Writer
	Guard    *fence.Guard
	IDs      *binding.IDs
	Agents   Agents
	Leases   Leases
	Files    Files
	Tools    Tools
	Provider sandbox.Provider
	// Environment is part of every binding's identity, such as "production".
	Environment string
	// Owner is this replica and its incarnation; another process never has it.
	Owner  string
	Bounds event.Bounds
	Logger *slog.Logger
	Meter  metric.Meter

	// BeatEvery is how often a driven run's owner beats.
	BeatEvery time.Duration
	// TakeOverAfter is how long another owner's beat must stand still.
	TakeOverAfter time.Duration
	// CancelGrace is how long a worker may take to stop by itself.
	CancelGrace time.Duration
	// ExitPatience is how long after a worker's stream broke the provider may take to
	// know that its sandbox is gone, and why.
	ExitPatience time.Duration
	// ReconcileEvery is how often what is ending is looked for.
	ReconcileEvery time.Duration
	// IdleAfter is how long a sandbox may wait for the next turn before it is given
	// back. The conversation goes on in another one.
	IdleAfter time.Duration
	// TendEvery is how often, at the least, sandboxes and leases are compared.
	TendEvery time.Duration
	// KeepEvents is how long the events of a run are kept after its end; 0 is for good.
	KeepEvents time.Duration
	// ForgetEvery is how often those are looked for that are kept no longer.
	ForgetEvery time.Duration
	// Now is time.Now outside of tests.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&c.BeatEvery, DefaultBeatEvery)
	set(&c.TakeOverAfter, DefaultTakeOverAfter)
	set(&c.CancelGrace, DefaultCancelGrace)
	set(&c.ExitPatience, DefaultExitPatience)
	set(&c.ReconcileEvery, DefaultReconcile)
	// A beat that is looked at more seldom than twice an interval counts as not seen.
	c.ReconcileEvery = min(c.ReconcileEvery, c.TakeOverAfter/4)
	set(&c.IdleAfter, DefaultIdleAfter)
	set(&c.TendEvery, DefaultTendEvery)
	set(&c.ForgetEvery, DefaultForgetEvery)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Service drives the runs of one replica.
type Service struct {
	cfg     Config
	hub     *hub
	drivers sync.WaitGroup
	// draining is set before drivers is waited for; nothing is driven after that.
	draining   bool
	drainingMu sync.Mutex
	late       metric.Int64Counter
	// stop ends all drivers; their runs are cancelled with reason shutdown.
	stop     context.Context //nolint:containedctx // the life of the service, which outlives every request
	stopNow  context.CancelFunc
	refusals *refusals
	releases *releases
	exits    *exits
}

// New makes a Service. Run must be called for it to conclude what is ending.
func New(cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	late, err := cfg.Meter.Int64Counter("cofferdam.events.late",
		metric.WithDescription("Events that came after the end of their run was decided, by reason."))
	if err != nil {
		return nil, err
	}
	stop, stopNow := context.WithCancel(context.Background())
	return &Service{
		cfg: cfg, hub: newHub(), late: late, stop: stop, stopNow: stopNow,
		refusals: newRefusals(), releases: newReleases(stop), exits: newExits(),
	}, nil
}

// Run reconciles until ctx ends; then it cancels the runs that this replica
// drives and waits, bounded, until they are concluded.
func (s *Service) Run(ctx context.Context) error {
	defer s.stopNow()
	var beside sync.WaitGroup
	beside.Go(func() { s.forget(ctx) })
	beside.Go(func() { s.tending(ctx) })
	s.reconcile(ctx)
	beside.Wait()
	s.drainingMu.Lock()
	s.draining = true
	s.drainingMu.Unlock()
	s.stopNow()
	done := make(chan struct{})
	go func() {
		s.drivers.Wait()
		s.releases.wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(2*s.cfg.CancelGrace + 5*time.Second):
		return errors.New("runs: some runs were not concluded in time; another replica will")
	}
}
