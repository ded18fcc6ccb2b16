// Package toolbroker is the service through which workers call tools: it has the
// catalogue of MCP servers and their credentials, authorizes the subject of the
// run for each call, and calls at most once.
package toolbroker

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect/v2"

	"cofferdam.dev/pkg/authz/openfgaauthz"
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingstore"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/mongodbstore"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/toolbroker/internal/assertclient"
	"cofferdam.dev/services/toolbroker/internal/audit"
	"cofferdam.dev/services/toolbroker/internal/call"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/delegationclient"
	"cofferdam.dev/services/toolbroker/internal/mcpstdio"
	"cofferdam.dev/services/toolbroker/internal/resultclient"
	"cofferdam.dev/services/toolbroker/internal/rpc"
)

// Deps are what a test replaces.
type Deps struct {
	// Backend of the committed records and the ledger; nil opens Config.Store.
	Backend binding.Backend
	// Keys of capabilities; nil asks the capability service.
	Keys capability.Keys

	backOff time.Duration
}

// Service is a ToolBroker.
type Service struct {
	rt        *service.Runtime
	catalogue *catalogue.Catalogue
	handler   http.Handler
	closers   []func() error
}

// New reads the catalogue, opens the store and starts the tool servers. What it
// opened is closed by Close, or here where it fails. A tool server that does not
// start is no failure: its tools are unavailable until it does.
func New(ctx context.Context, cfg *Config, rt *service.Runtime, deps Deps) (*Service, error) {
	s := &Service{rt: rt}
	if err := s.open(ctx, cfg, deps); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Service) open(ctx context.Context, cfg *Config, deps Deps) error {
	servers, err := catalogue.Load(cfg.Catalogue)
	if err != nil {
		return err
	}
	worlds := mcpstdio.OpenWorlds(ctx, mcpstdio.WorldsConfig{
		Launcher: cfg.Launcher, FirstID: uint32(cfg.StdioFirstID), AllowWeak: cfg.AllowWeakIsolation, //nolint:gosec // validated
		Private: append(cfg.private(), servers.Secrets()...), Logger: s.rt.Logger,
	})
	s.closers = append(s.closers, worlds.Close)
	options := catalogue.Options{Logger: s.rt.Logger, BackOff: deps.backOff, Worlds: worlds}
	if cfg.ControlPlaneURL != "" {
		conn, err := s.peer(cfg.controlPlane)
		if err != nil {
			return err
		}
		options.Runs = delegationclient.New(conn)
	}
	if s.catalogue, err = catalogue.New(servers, options); err != nil {
		return err
	}
	authorizer, err := openfgaauthz.New(cfg.OpenFGA)
	if err != nil {
		return err
	}
	backend, err := s.backend(ctx, cfg, deps)
	if err != nil {
		return err
	}
	verifier, err := s.verifier(cfg, deps)
	if err != nil {
		return err
	}
	writer := binding.NewWriter(backend, time.Now)
	s.rt.AddCheck("binding-store", func(ctx context.Context) error {
		if _, err := writer.Committed(ctx, "hs_readiness_probe"); !errors.Is(err, fence.ErrUnknownBinding) {
			return err
		}
		return nil
	})
	s.rt.AddCheck("catalogue", s.catalogue.Ready)
	calls := call.Config{
		Tools: s.catalogue, Records: backend, Effects: binding.NewEffects(writer), Authorizer: authorizer, Logger: s.rt.Logger,
	}
	if err := s.openAudit(ctx, cfg, &calls); err != nil {
		return err
	}
	if err := s.openPeers(cfg, &calls); err != nil {
		return err
	}
	s.handler, err = rpc.NewHandler(rpc.Config{
		TrustDomain: s.rt.TrustDomain,
		Logger:      s.rt.Logger,
		Verifier:    verifier,
		Guard:       fence.NewGuard(writer, time.Now),
		Telemetry:   s.rt.Telemetry,
		Lister:      s.catalogue,
		Caller:      call.New(calls),
	})
	if err != nil {
		return err
	}
	s.startServers(ctx)
	return nil
}

// openAudit opens the audit, or says once that there is none.
func (s *Service) openAudit(ctx context.Context, cfg *Config, calls *call.Config) error {
	if cfg.AuditFile == "" {
		s.rt.Logger.WarnContext(ctx, "decisions are only logged: there is no durable audit without --audit-file")
		return nil
	}
	var err error
	if calls.Digester, err = audit.ReadKey(cfg.AuditKeyFile); err != nil {
		return err
	}
	file, err := audit.OpenFile(cfg.AuditFile, cfg.AuditRotateBytes)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, file.Close)
	s.rt.AddCheck("audit", file.Check)
	calls.Audit = file
	return nil
}

// openPeers connects to the capability service, for what may be done on a run's
// behalf, and to the file broker.
func (s *Service) openPeers(cfg *Config, calls *call.Config) error {
	if cfg.CapabilityURL == "" { // a test's; Validate wants one
		return nil
	}
	capabilities, err := s.peer(cfg.capability)
	if err != nil {
		return err
	}
	calls.Assertions = assertclient.New(capabilities)
	if cfg.FileBrokerURL == "" {
		return nil
	}
	files, err := s.peer(cfg.fileBroker)
	if err != nil {
		return err
	}
	calls.Results = resultclient.New(capabilities, files)
	return nil
}

func (s *Service) peer(endpoint func() (pkgrpc.Endpoint, error)) (*connect.Client, error) {
	ep, err := endpoint()
	if err != nil {
		return nil, err
	}
	hc := ep.HTTPClient(s.rt.Source)
	s.closers = append(s.closers, func() error { hc.CloseIdleConnections(); return nil })
	return pkgrpc.NewClient(hc, ep.BaseURL(), s.rt.Telemetry)
}

// startServers runs the tool servers until Close: requests that are still being
// answered when the service is told to stop need them.
func (s *Service) startServers(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { s.catalogue.Run(ctx) })
	s.closers = append(s.closers, func() error { cancel(); running.Wait(); return nil })
}

func (s *Service) backend(ctx context.Context, cfg *Config, deps Deps) (binding.Backend, error) {
	if deps.Backend != nil {
		return deps.Backend, nil
	}
	store, err := bindingstore.Open(ctx, cfg.at(cfg.Store), mongodbstore.NewClients(s.rt.Telemetry.Tracer))
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, store.Close)
	s.rt.AddCheck("store-version", store.Check)
	return store, nil
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

// Run serves until ctx ends, and then closes the service.
func (s *Service) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.rt.Serve(ctx, s.handler, rpc.Callers(s.rt.TrustDomain))
}

// Close ends the tool servers and closes what New opened, the last first. It can
// be repeated.
func (s *Service) Close() error {
	var errs []error
	for len(s.closers) > 0 {
		last := len(s.closers) - 1
		errs = append(errs, s.closers[last]())
		s.closers = s.closers[:last]
	}
	return errors.Join(errs...)
}
