// Package filebroker is the service that keeps files outside of sandboxes and
// moves them through scoped, expiring handles.
package filebroker

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
	"cofferdam.dev/services/filebroker/internal/files"
	"cofferdam.dev/services/filebroker/internal/files/catalogue"
	"cofferdam.dev/services/filebroker/internal/rpc"
)

// Deps are what a test replaces.
type Deps struct {
	// Backend of the committed records; nil opens Config.Store.
	Backend binding.Backend
	// Keys of capabilities; nil asks the capability service.
	Keys capability.Keys
}

// Service is a file broker.
type Service struct {
	rt      *service.Runtime
	handler http.Handler
	closers []func() error

	files        *files.Service
	collectEvery time.Duration
}

// New opens the stores. What it opened is closed by Close, or here where it
// fails.
func New(ctx context.Context, cfg *Config, rt *service.Runtime, deps Deps) (*Service, error) {
	s := &Service{rt: rt}
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
	domain := files.Config{QuotaBytes: cfg.QuotaBytes, Logger: s.rt.Logger, Now: time.Now}
	if err := s.stores(ctx, cfg, clients, &domain); err != nil {
		return err
	}
	verifier, err := s.verifier(cfg, deps)
	if err != nil {
		return err
	}
	writer := binding.NewWriter(backend, time.Now)
	domain.Records, domain.CollectAfter = writer, cfg.CollectAfter
	domain.Guard, domain.Effects = fence.NewGuard(writer, time.Now), binding.NewEffects(writer)
	s.files, s.collectEvery = files.New(domain), cfg.CollectEvery
	s.handler, err = rpc.NewHandler(rpc.Config{
		TrustDomain: s.rt.TrustDomain,
		Logger:      s.rt.Logger,
		Verifier:    verifier,
		Guard:       domain.Guard,
		Telemetry:   s.rt.Telemetry,
		Files:       s.files,
	})
	return err
}

func (s *Service) backend(ctx context.Context, cfg *Config, deps Deps, clients *mongodbstore.Clients) (binding.Backend, error) {
	backend := deps.Backend
	if backend == nil {
		store, err := bindingstore.Open(ctx, cfg.at(cfg.Store), clients)
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, store.Close)
		s.rt.AddCheck("store-version", store.Check)
		backend = store
	}
	s.rt.AddCheck("binding-store", func(ctx context.Context) error {
		if _, err := backend.Committed(ctx, "readiness"); !errors.Is(err, binding.ErrNotFound) {
			return err
		}
		return nil
	})
	return backend, nil
}

// stores opens the catalogue and the contents.
func (s *Service) stores(ctx context.Context, cfg *Config, clients *mongodbstore.Clients, domain *files.Config) error {
	entries, err := catalogue.Open(ctx, cfg.at(cfg.HandleStore), clients)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, entries.Close)
	bucket, err := blobstore.Open(ctx, cfg.blobs())
	if err != nil {
		return err
	}
	s.closers = append(s.closers, bucket.Close)
	s.rt.AddCheck("handle-store", entries.Check)
	s.rt.AddCheck("blob-store", bucket.Check)
	domain.Catalogue, domain.Blobs = entries, bucket
	return nil
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

// Handler serves the RPC service.
func (s *Service) Handler() http.Handler { return s.handler }

// Run serves and collects until ctx ends, and then closes the service.
func (s *Service) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		service.Every(ctx, s.rt.Logger, s.collectEvery, "collection of files", s.collect)
		return nil
	})
	g.Go(func() error { return s.rt.Serve(ctx, s.handler, rpc.Callers(s.rt.TrustDomain)) })
	return g.Wait()
}

// collect removes what nothing refers to.
func (s *Service) collect(ctx context.Context) error {
	c, err := s.files.Collect(ctx)
	if c != (files.Collected{}) {
		s.rt.Logger.InfoContext(ctx, "files were collected", "staged", c.Staged, "objects", c.Objects, "contents", c.Contents, "uploads", c.Uploads, "blobs", c.Strays)
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
