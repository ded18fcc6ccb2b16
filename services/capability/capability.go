// Package capability is the capability service: it mints the short-lived,
// narrow tokens that a sandbox and its control plane present (Sandbox Worker
// Protocol v1, "Authorization"), and publishes the keys to verify them with.
//
// It has the signing keys and no other authority. Only the control plane may
// ask, for a run that is committed and that the asking replica drives, or for
// the lease's lifecycle; ToolBroker may exchange what a worker sent it for a
// narrower one. What a capability says and how it is verified stands in
// cofferdam.dev/pkg/capability, which cannot sign.
package capability

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingstore"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/capability/internal/mint"
	"cofferdam.dev/services/capability/internal/rpc"
	"cofferdam.dev/services/capability/internal/signingkey"
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
	close   func() error
}

// New builds the service from a configuration that was validated. It opens the
// store and reads the signing keys, and it makes the key file only where
// Config.CreateKey says so.
func New(ctx context.Context, cfg Config, deps Deps) (_ *Service, err error) {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	s := &Service{store: deps.Store, close: func() error { return nil }}
	if s.access, err = cfg.access(); err != nil {
		return nil, err
	}
	load := signingkey.Load
	if cfg.CreateKey {
		load = signingkey.LoadOrCreate
	}
	ring, err := load(cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	if s.store == nil {
		backend, err := bindingstore.Open(ctx, cfg.at(cfg.Store), deps.Telemetry.Tracer)
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		s.store, s.close = records{backend, binding.NewWriter(backend, deps.Now)}, backend.Close
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	minter, err := mint.New(mint.Config{
		Issuer: s.access.issuer, TrustDomain: s.access.trustDomain, Records: s.store, Signer: ring, Keys: ring,
		MaxTTL: cfg.MaxTTL, Now: deps.Now, Logger: deps.Logger,
	})
	if err != nil {
		return nil, err
	}
	s.handler, err = rpc.NewHandler(rpc.Config{
		Minter: minter, JWKS: ring.JWKS(), MintCallers: s.access.mint, ExchangeCallers: s.access.exchange, JWKSCallers: s.access.jwks,
		Guard: fence.NewGuard(s.store, deps.Now), Logger: deps.Logger, Telemetry: deps.Telemetry,
	})
	if err != nil {
		return nil, err
	}
	deps.Logger.InfoContext(ctx, "signing keys read", "signs", ring.SignerID(), "published", ring.Len())
	return s, nil
}

// Handler serves harness.capability.v1 and the JWK set. It needs the TLS state of
// each request, from a listener with identity.ServerTLS.
func (s *Service) Handler() http.Handler { return s.handler }

// Callers are all who may connect: who may mint or exchange, and who may read the
// keys.
func (s *Service) Callers() identity.AllowList {
	return slices.Concat(s.access.mint, s.access.exchange, s.access.jwks)
}

// Close closes the store that New opened.
func (s *Service) Close() error { return s.close() }

// Run runs the service until ctx ends; it is what cmd/capability calls.
func Run(ctx context.Context, cfg *Config, rt *service.Runtime) (err error) {
	s, err := New(ctx, *cfg, Deps{Logger: rt.Logger, Telemetry: rt.Telemetry})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	rt.AddCheck("store", s.ready)
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
