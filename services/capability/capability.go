// Package capability is the capability service: it mints the short-lived,
// narrow tokens that a sandbox and its control plane present (Sandbox Worker
// Protocol v1, "Authorization"), and publishes the keys to verify them with.
//
// It has the signing keys and no other authority. Only the control plane may
// ask, for a run that is committed and that the asking replica drives, or for
// the lease's lifecycle; ToolBroker may exchange what a worker sent it for a
// narrower one, or for an assertion about the run's subject to a token endpoint. What a capability says and how it is verified stands in
// cofferdam.dev/pkg/capability, which cannot sign.
package capability

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingstore"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/capability/internal/mint"
	"cofferdam.dev/services/capability/internal/rpc"
	"cofferdam.dev/services/capability/internal/signingkey"
	"cofferdam.dev/services/capability/internal/signingkey/keystore"
)

// Deps are what a test may replace.
type Deps struct {
	Logger    *slog.Logger
	Telemetry *telemetry.Telemetry
	// Store of committed records; nil opens Config.Store. A store that is given is
	// not closed.
	Store Store
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Store has the committed records, to read only: Load of a binding.Backend and
// Committed of a binding.Writer.
type Store interface {
	fence.Reader
	Load(ctx context.Context, bindingID string) (binding.Record, error)
}

// Service is the capability service. Close it when it is no longer used.
type Service struct {
	handler http.Handler
	access  access
	store   Store
	keys    *signingkey.Keeper
	closers []func() error
}

// New builds the service from a configuration that was validated. It opens the
// store and reads the signing keys in it, and it makes the key file only where
// Config.CreateKey says so.
func New(ctx context.Context, cfg Config, deps Deps) (_ *Service, err error) {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	s := &Service{store: deps.Store}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.access, err = cfg.access(); err != nil {
		return nil, err
	}
	clients := mongodbstore.NewClients(deps.Telemetry.Tracer)
	if s.store == nil {
		backend, err := bindingstore.Open(ctx, cfg.at(cfg.Store), clients)
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		s.closers = append(s.closers, backend.Close)
		s.store = records{backend, binding.NewWriter(backend, deps.Now)}
	}
	if err := s.openKeys(ctx, cfg, deps, clients); err != nil {
		return nil, err
	}
	minter, err := mint.New(mint.Config{
		Issuer: s.access.issuer, TrustDomain: s.access.trustDomain, Records: s.store, Signer: s.keys, Keys: s.keys,
		MaxTTL: cfg.MaxTTL, TokenEndpoints: cfg.tokenEndpoints(), Now: deps.Now, Logger: deps.Logger,
	})
	if err != nil {
		return nil, err
	}
	s.handler, err = rpc.NewHandler(rpc.Config{
		Minter: minter, JWKS: s.keys.JWKS, MintCallers: s.access.mint, ExchangeCallers: s.access.exchange,
		AssertCallers: s.access.assert, JWKSCallers: s.access.jwks,
		Guard: fence.NewGuard(s.store, deps.Now), Logger: deps.Logger, Telemetry: deps.Telemetry,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// openKeys reads the signing keys, and keeps reading them until Close: requests
// that are still being answered when the service is told to stop need them.
func (s *Service) openKeys(ctx context.Context, cfg Config, deps Deps, clients *mongodbstore.Clients) error {
	load := signingkey.Load
	if cfg.CreateKey {
		load = signingkey.LoadOrCreate
	}
	sealer, err := load(cfg.KeyFile)
	if err != nil {
		return err
	}
	store, err := keystore.Open(ctx, cfg.at(cfg.Store), clients)
	if err != nil {
		return fmt.Errorf("signing keys: %w", err)
	}
	s.closers = append(s.closers, store.Close)
	s.keys, err = signingkey.Open(ctx, signingkey.Config{
		Store: store, Sealer: sealer, Schedule: cfg.schedule(), Now: deps.Now, Logger: deps.Logger,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { s.keys.Run(ctx) })
	s.closers = append(s.closers, func() error { cancel(); running.Wait(); return nil })
	return nil
}

// Handler serves harness.capability.v1 and the JWK set. It needs the TLS state of
// each request, from a listener with identity.ServerTLS.
func (s *Service) Handler() http.Handler { return s.handler }

// Callers are all who may connect: who may mint, exchange or have a subject
// asserted, and who may read the keys.
func (s *Service) Callers() identity.AllowList {
	return slices.Concat(s.access.mint, s.access.exchange, s.access.assert, s.access.jwks)
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

// Run runs the service until ctx ends; it is what cmd/capability calls.
func Run(ctx context.Context, cfg *Config, rt *service.Runtime) (err error) {
	s, err := New(ctx, *cfg, Deps{Logger: rt.Logger, Telemetry: rt.Telemetry})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	rt.AddCheck("store", s.ready)
	rt.AddCheck("signing-keys", s.keys.Check)
	return rt.Serve(ctx, s.handler, s.Callers())
}

// ready asks the store for a binding that does not exist.
func (s *Service) ready(ctx context.Context) error {
	_, err := s.store.Committed(ctx, "hs_readiness_probe")
	if errors.Is(err, fence.ErrUnknownBinding) {
		return nil
	}
	return err
}

// records reads a backend's records as the fence and the mint want them.
type records struct {
	backend binding.Backend
	writer  *binding.Writer
}

func (r records) Load(ctx context.Context, bindingID string) (binding.Record, error) {
	return r.backend.Load(ctx, bindingID)
}

func (r records) Committed(ctx context.Context, bindingID string) (fence.Committed, error) {
	return r.writer.Committed(ctx, bindingID)
}
