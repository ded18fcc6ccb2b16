// Package controlplane is the trusted control plane: it owns bindings, leases,
// runs, the event log and the public API, and drives one worker for each
// conversation.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/pkg/authz/openfgaauthz"
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingstore"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/mongodbstore"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/controlplane/internal/agents/agentstore"
	"cofferdam.dev/services/controlplane/internal/api"
	"cofferdam.dev/services/controlplane/internal/delegation"
	"cofferdam.dev/services/controlplane/internal/filebrokerclient"
	"cofferdam.dev/services/controlplane/internal/rpc"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/workerclient"
)

// Run runs the control plane until ctx ends.
func Run(ctx context.Context, cfg *Config, rt *service.Runtime) (err error) {
	rt.Logger = rt.Logger.With("replica", cfg.Replica)
	clients := mongodbstore.NewClients(rt.Telemetry.Tracer)
	store, err := bindingstore.Open(ctx, cfg.at(cfg.Store), clients)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	rt.AddCheck("store-version", store.Check)
	rt.AddCheck("store", func(ctx context.Context) error {
		_, err := store.List(ctx, "", 1, true)
		return err
	})
	versions, err := agentstore.Open(ctx, cfg.at(cfg.Store), clients)
	if err != nil {
		return fmt.Errorf("store of agents: %w", err)
	}
	defer func() { err = errors.Join(err, versions.Close()) }()
	rt.AddCheck("agents-version", versions.Check)
	workers := workerclient.NewDialer(rt.Source, rt.Telemetry)
	provider, warm, err := newProvider(ctx, cfg, rt, workers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, provider.Close()) }()
	writer := binding.NewWriter(store, time.Now)
	catalogue := provider.Describe(ctx)
	conns, err := dialServices(cfg, rt)
	if err != nil {
		return err
	}
	brokered := filebrokerclient.New(conns.fileBroker)
	registry, err := newAgents(ctx, cfg, rt, versions, catalogue, brokered)
	if err != nil {
		return err
	}
	service, err := newRuns(cfg, rt, writer, provider, workers, registry, conns, brokered) //nolint:contextcheck // runs go on for a while after ctx has ended
	if err != nil {
		return err
	}
	authorizer, err := openfgaauthz.New(cfg.OpenFGA)
	if err != nil {
		return err
	}
	public, err := newAPI(cfg, rt, service, registry, catalogue, authorizer)
	if err != nil {
		return err
	}
	inner, err := rpc.NewHandler(rpc.Config{
		TrustDomain: rt.TrustDomain, Logger: rt.Logger, Guard: fence.NewGuard(writer, time.Now), Telemetry: rt.Telemetry,
		Delegation: delegation.New(service, registry, authorizer, rt.Logger),
	})
	if err != nil {
		return err
	}
	warm()
	return serve(ctx, cfg, rt, service, public, inner)
}

// serve opens all listeners before it answers at any of them.
func serve(ctx context.Context, cfg *Config, rt *service.Runtime, svc *runs.Service, a *api.API, inner http.Handler) error {
	public, err := service.Listen(ctx, cfg.PublicListen)
	if err != nil {
		return fmt.Errorf("--public-listen: %w", err)
	}
	operators, err := service.Listen(ctx, cfg.OperatorListen)
	if err != nil {
		return errors.Join(fmt.Errorf("--operator-listen: %w", err), public.Close())
	}
	at := func(l net.Listener, h http.Handler) func(context.Context) error {
		return func(ctx context.Context) error {
			return service.ServeListener(ctx, service.HTTPServer(h, rt.Logger), l, cfg.DrainTimeout)
		}
	}
	return orderly(ctx, cfg.DrainTimeout/2, svc.Run,
		at(public, a.Public()), at(operators, a.Operators()),
		func(ctx context.Context) error { return rt.Serve(ctx, inner, rpc.Callers(rt.TrustDomain)) })
}

// orderly drives runs for as long as servers answer requests, and longer: what
// the last request started is concluded as well.
//
// When ctx ends or a server fails, the servers drain. Runs that a request still
// waits for have the time of grace to end by themselves; then all are cancelled,
// while the streams that wait for them are still there to get their terminals.
func orderly(ctx context.Context, grace time.Duration, drive func(context.Context) error, servers ...func(context.Context) error) error {
	serving, sctx := errgroup.WithContext(ctx)
	for _, s := range servers {
		serving.Go(func() error { return s(sctx) })
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var driving errgroup.Group
	driving.Go(func() error { return drive(running) })
	driving.Go(func() error {
		<-sctx.Done() // at the latest when the servers have ended
		select {
		case <-time.After(grace):
			stop()
		case <-running.Done():
		}
		return nil
	})
	err := serving.Wait()
	stop()
	return errors.Join(err, driving.Wait())
}
