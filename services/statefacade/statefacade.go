// Package statefacade is the service that keeps thread state and memory outside
// of sandboxes: two RPC services with two audiences in one process.
package statefacade

import (
	"context"
	"errors"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingstore"
	"cofferdam.dev/pkg/blob/blobstore"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/statefacade/internal/embedding"
	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/memorystore"
	"cofferdam.dev/services/statefacade/internal/memory/secrets"
	"cofferdam.dev/services/statefacade/internal/rpc"
	"cofferdam.dev/services/statefacade/internal/threadstate"
	"cofferdam.dev/services/statefacade/internal/threadstate/snapshotstore"
)

// Deps are what a test replaces.
type Deps struct {
	// Backend of the committed records; nil opens Config.Store.
	Backend binding.Backend
	// Keys of capabilities; nil asks the capability service.
	Keys capability.Keys
}

// memorySweep is how often memory is swept.
const memorySweep = time.Minute

// Service is a state facade.
type Service struct {
	rt      *service.Runtime
	handler http.Handler
	memory  *memory.Service
	thread  *threadstate.Service
	closers []func() error
	// threadEvery and memoryEvery are between two sweeps.
	threadEvery, memoryEvery time.Duration
}

// New opens the stores. What it opened is closed by Close, or here where it
// fails.
func New(ctx context.Context, cfg *Config, rt *service.Runtime, deps Deps) (*Service, error) {
	s := &Service{rt: rt, threadEvery: cfg.SweepInterval, memoryEvery: memorySweep}
	if err := s.open(ctx, cfg, deps); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Service) open(ctx context.Context, cfg *Config, deps Deps) error {
	clients := mongodbstore.NewClients(s.rt.Telemetry.Tracer)
	backend, err := s.backend(ctx, cfg, deps, clients)
	if err != nil {
		return err
	}
	snapshots, err := snapshotstore.Open(ctx, cfg.at(cfg.StateStore), clients)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, snapshots.Close)
	memories, err := memorystore.Open(ctx, cfg.at(cfg.StateStore), clients)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, memories.Close)
	blobs, err := blobstore.Open(ctx, cfg.blobs())
	if err != nil {
		return err
	}
	s.closers = append(s.closers, blobs.Close)
	s.rt.AddCheck("binding-store", func(ctx context.Context) error {
		if _, err := backend.Committed(ctx, "readiness"); !errors.Is(err, binding.ErrNotFound) {
			return err
		}
		return nil
	})
	s.rt.AddCheck("snapshot-store", snapshots.Check)
	s.rt.AddCheck("blob-store", blobs.Check)
	s.rt.AddCheck("memory-store", memories.Check)
	verifier, err := s.verifier(cfg, deps)
	if err != nil {
		return err
	}

	policy, err := memory.LoadPolicy(cfg.MemoryPolicy)
	if err != nil {
		return err
	}
	embedder, err := s.embedder(cfg)
	if err != nil {
		return err
	}
	writer := binding.NewWriter(backend, time.Now)
	scanner, err := secrets.New()
	if err != nil {
		return err
	}
	s.memory = memory.New(memory.Config{
		Records: backend, Effects: binding.NewEffects(writer), Store: memories, Policy: policy,
		Secrets: scanner, Logger: s.rt.Logger, Now: time.Now, Embedder: embedder,
	})
	s.thread = threadstate.New(writer, snapshots, blobs, s.rt.Logger, time.Now)
	s.handler, err = rpc.NewHandler(rpc.Config{
		TrustDomain: s.rt.TrustDomain,
		Logger:      s.rt.Logger,
		Verifier:    verifier,
		Guard:       fence.NewGuard(writer, time.Now),
		Telemetry:   s.rt.Telemetry,
		ThreadState: s.thread,
		Memory:      s.memory,
	})
	return err
}

func (s *Service) backend(ctx context.Context, cfg *Config, deps Deps, clients *mongodbstore.Clients) (binding.Backend, error) {
	if deps.Backend != nil {
		return deps.Backend, nil
	}
	store, err := bindingstore.Open(ctx, cfg.at(cfg.Store), clients)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, store.Close)
	s.rt.AddCheck("store-version", store.Check)
	return store, nil
}

// embedder is nil where the operator names none.
func (s *Service) embedder(cfg *Config) (memory.Embedder, error) {
	ep, space, err := cfg.embedding()
	if err != nil || space.Model == "" {
		return nil, err
	}
	client := embedding.New(ep.HTTPClient(s.rt.Source), ep.BaseURL(), space)
	s.closers = append(s.closers, client.Close)
	return client, nil
}

func (s *Service) verifier(cfg *Config, deps Deps) (*capability.Verifier, error) {
	keys := deps.Keys
	if keys == nil {
		ep, err := cfg.capability()
		if err != nil {
			return nil, err
		}
		client := ep.HTTPClient(s.rt.Source)
		remote := capability.NewRemoteKeys(client, ep.BaseURL()+capability.JWKSPath)
		s.closers = append(s.closers, func() error { client.CloseIdleConnections(); return nil }, remote.Close)
		keys = remote
	}
	return capability.NewVerifier(capability.Config{Issuer: cfg.Issuer, Keys: keys})
}

// Handler serves both RPC services.
func (s *Service) Handler() http.Handler { return s.handler }

// Run serves until ctx ends, and then closes the service.
func (s *Service) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		service.Every(ctx, s.rt.Logger, s.memoryEvery, "deletion of memory whose time is over", s.sweepMemory)
		return nil
	})
	g.Go(func() error {
		service.Every(ctx, s.rt.Logger, s.threadEvery, "removal of snapshots that lost", s.thread.Sweep)
		return nil
	})
	g.Go(func() error { return s.rt.Serve(ctx, s.handler, rpc.Callers(s.rt.TrustDomain)) })
	return g.Wait()
}

// sweepMemory deletes memory whose time is over, which is not read before either, and
// embeds what no search has embedded yet.
func (s *Service) sweepMemory(ctx context.Context) error {
	deleted, err := s.memory.Sweep(ctx)
	if deleted > 0 {
		s.rt.Logger.InfoContext(ctx, "memory whose time is over was deleted", "records", deleted)
	}
	// What cannot be embedded is said by the memory service, and tried again.
	if n, err := s.memory.Embed(ctx); err == nil && n > 0 {
		s.rt.Logger.InfoContext(ctx, "memory was embedded", "records", n)
	}
	return err
}

// Close closes what New opened, the last first. It can be repeated.
func (s *Service) Close() error {
	var errs []error
	for len(s.closers) > 0 {
		last := len(s.closers) - 1
		errs = append(errs, s.closers[last]())
		s.closers = s.closers[:last]
	}
	return errors.Join(errs...)
}
