// Package modelproxy is the service between sandboxes and model endpoints. It
// owns the aliases and the keys of the providers, and nothing else.
//
// It speaks the model's own wire behind mutual TLS:
//
//	POST /v1/chat/completions                    OpenAI Chat Completions
//	POST /v1/responses                           OpenAI Responses
//	POST /v1/messages                            Anthropic Messages
//	POST /v1/messages/count_tokens
//	POST /v1beta/models/NAME:generateContent     Gemini
//	POST /v1beta/models/NAME:streamGenerateContent?alt=sse
//	GET  /v1/models                              the alias, and no other
//	POST /v1/embeddings                          OpenAI Embeddings, for the state facade
//
// A request carries its capability in Authorization and its envelope in
// Cofferdam-Envelope; both are checked before its body is read, and neither goes
// on. The capability says which alias answers; the model that a request names
// does not. Embeddings alone are asked for by a service, as itself: there the model
// is the alias.
package modelproxy

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingstore"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/demomodel"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/modelproxy/internal/proxy"
	"cofferdam.dev/services/modelproxy/internal/rpc"
)

// Deps are what a test replaces.
type Deps struct {
	// Records are the committed ones; nil opens Config.Store. What is given is not
	// closed.
	Records fence.Reader
	// Keys of capabilities; nil asks the capability service.
	Keys capability.Keys
}

// Service is a model proxy. Close it when it is no longer used.
type Service struct {
	rt      *service.Runtime
	handler http.Handler
	closers []func() error
}

// New reads the aliases and opens the store. What it opened is closed by Close,
// or here where it fails.
func New(ctx context.Context, cfg *Config, rt *service.Runtime, deps Deps) (*Service, error) {
	s := &Service{rt: rt}
	if err := s.open(ctx, cfg, deps); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Service) open(ctx context.Context, cfg *Config, deps Deps) error {
	aliases, err := readAliases(cfg.Aliases)
	if err != nil {
		return err
	}
	p, err := proxy.New(proxy.Config{Aliases: aliases}, proxy.Deps{
		Logger: s.rt.Logger, Demo: demomodel.New(), Meter: s.rt.Telemetry.MeterProvider.Meter("cofferdam"),
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { p.Close(); return nil })
	records, err := s.records(ctx, cfg, deps)
	if err != nil {
		return err
	}
	verifier, err := s.verifier(cfg, deps)
	if err != nil {
		return err
	}
	s.handler, err = rpc.NewHandler(rpc.Config{
		TrustDomain: s.rt.TrustDomain,
		Logger:      s.rt.Logger,
		Verifier:    verifier,
		Guard:       fence.NewGuard(records, time.Now),
		Telemetry:   s.rt.Telemetry,
		Proxy:       p,
		CallsPerRun: cmp.Or(cfg.CallsPerRun, defaultCallsPerRun),
	})
	return err
}

func (s *Service) records(ctx context.Context, cfg *Config, deps Deps) (fence.Reader, error) {
	records := deps.Records
	if records == nil {
		store, err := bindingstore.Open(ctx, cfg.at(cfg.Store), mongodbstore.NewClients(s.rt.Telemetry.Tracer))
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, store.Close)
		s.rt.AddCheck("store-version", store.Check)
		records = binding.NewWriter(store, time.Now)
	}
	s.rt.AddCheck("binding-store", func(ctx context.Context) error {
		if _, err := records.Committed(ctx, "readiness"); !errors.Is(err, fence.ErrUnknownBinding) {
			return err
		}
		return nil
	})
	return records, nil
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

// Handler serves the model routes. It needs the TLS state of each request, from a
// listener with identity.ServerTLS.
func (s *Service) Handler() http.Handler { return s.handler }

// Run serves until ctx ends, and then closes the service.
func (s *Service) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.rt.Serve(ctx, s.handler, rpc.Callers(s.rt.TrustDomain))
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
