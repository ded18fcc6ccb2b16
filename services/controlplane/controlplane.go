// Package controlplane is the trusted control plane: it owns bindings, leases,
// runs, the event log and the public API, and drives one worker for each
// conversation.
package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"golang.org/x/sync/errgroup"

	"cofferdam.dev/pkg/authz/openfgaauthz"
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/sqlitestore"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/api"
	"cofferdam.dev/services/controlplane/internal/authn"
	"cofferdam.dev/services/controlplane/internal/capabilityclient"
	"cofferdam.dev/services/controlplane/internal/filebrokerclient"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/sandbox/process"
	"cofferdam.dev/services/controlplane/internal/toolbrokerclient"
	"cofferdam.dev/services/controlplane/internal/worker"
	"cofferdam.dev/services/controlplane/internal/workerclient"
)

const (
	minKeyBytes = 32
	maxKeyBytes = 4 << 10
	jwksTimeout = 5 * time.Second
)

// Run runs the control plane until ctx ends.
func Run(ctx context.Context, cfg *Config, rt *service.Runtime) (err error) {
	store, err := sqlitestore.Open(ctx, cfg.Store)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	rt.AddCheck("store", func(ctx context.Context) error {
		_, err := store.List(ctx, "", 1, true)
		return err
	})
	provider, err := newProvider(ctx, cfg, rt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, provider.Close()) }()
	writer := binding.NewWriter(store, time.Now)
	service, err := newRuns(cfg, rt, writer, provider)
	if err != nil {
		return err
	}
	public, err := newAPI(cfg, rt, service)
	if err != nil {
		return err
	}
	return serve(ctx, cfg, rt, service, public)
}

// serve runs the reconciler for as long as requests are answered, and longer:
// runs are concluded after the last request, unless requests take too long.
//
// When ctx ends, runs that go on have half of the drain time to end by
// themselves; then they are cancelled, and the streams that wait for them still
// get their terminals before they are cut.
func serve(ctx context.Context, cfg *Config, rt *service.Runtime, svc *runs.Service, a *api.API) error {
	public, err := service.Listen(ctx, cfg.PublicListen)
	if err != nil {
		return fmt.Errorf("--public-listen: %w", err)
	}
	operators, err := service.Listen(ctx, cfg.OperatorListen)
	if err != nil {
		return errors.Join(fmt.Errorf("--operator-listen: %w", err), public.Close())
	}
	servers, sctx := errgroup.WithContext(ctx)
	for _, s := range []struct {
		listener net.Listener
		handler  http.Handler
	}{{public, a.Public()}, {operators, a.Operators()}} {
		servers.Go(func() error {
			return service.ServeListener(sctx, service.HTTPServer(s.handler, rt.Logger), s.listener, cfg.DrainTimeout)
		})
	}
	// Nothing of the control plane is for other workloads yet; the listener
	// answers probes and refuses everybody else.
	servers.Go(func() error { return rt.Serve(sctx, http.NotFoundHandler(), identity.AllowList{}) })

	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var driving errgroup.Group
	driving.Go(func() error { return svc.Run(running) })
	driving.Go(func() error {
		<-sctx.Done() // at the latest when the servers have ended
		select {
		case <-time.After(cfg.DrainTimeout / 2):
			stop()
		case <-running.Done():
		}
		return nil
	})
	err = servers.Wait()
	stop()
	return errors.Join(err, driving.Wait())
}

func newProvider(ctx context.Context, cfg *Config, rt *service.Runtime) (*process.Provider, error) {
	registrar := endpoint(rt, cfg.RegistrarAddress, "registrar")
	p, err := process.New(process.Config{
		WorkerPath: cfg.WorkerPath,
		WorkerArgs: []string{"--capability", cfg.CapabilityAddress, "--issuer", cfg.WorkerIssuer, "--otlp-endpoint", cfg.OTLPEndpoint},
		Workspaces: cfg.Workspaces, LogDir: cfg.WorkerLogs, TrustDomain: rt.TrustDomain,
		Identities:   process.NewRegistrar(registrar.HTTPClient(rt.Source), registrar.BaseURL()),
		MaxInstances: cfg.MaxSandboxes, Logger: rt.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("sandbox provider: %w", err)
	}
	weak := p.Weaknesses()
	if len(weak) == 0 {
		return p, nil
	}
	missing := strings.Join(weak, ", ")
	if !cfg.AllowWeakIsolation {
		return nil, errors.Join(fmt.Errorf("the process sandbox lacks isolation layers: %s; give --allow-weak-isolation to start all the same", missing), p.Close())
	}
	rt.Logger.WarnContext(ctx, "sandboxes are weak: isolation layers are missing", "missing", missing)
	return p, nil
}

func newRuns(cfg *Config, rt *service.Runtime, writer *binding.Writer, provider *process.Provider) (*runs.Service, error) {
	catalogue, err := agents.Load(cfg.Agents)
	if err != nil {
		return nil, err
	}
	ids, err := newIDs(cfg.IDKeyFile)
	if err != nil {
		return nil, err
	}
	conns := map[string]*connect.Client{}
	for name, address := range map[string]string{"capability": cfg.CapabilityAddress, "toolbroker": cfg.ToolBrokerAddress, "filebroker": cfg.FileBrokerAddress} {
		if conns[name], err = endpoint(rt, address, name).Dial(rt.Source, rt.Telemetry); err != nil {
			return nil, err
		}
	}
	// Another process, also one that is started again, never has this name.
	owner := "cp-" + rand.Text()
	guard := fence.NewGuard(writer, time.Now)
	state := endpoint(rt, cfg.StateFacadeAddress, "statefacade")
	leases := lease.New(lease.Config{
		Writer: writer, Guard: guard, Provider: provider, Workers: workerclient.NewDialer(rt.Source, rt.Telemetry),
		Minter: capabilityclient.New(conns["capability"]), Tools: toolbrokerclient.New(conns["toolbroker"]),
		TrustDomain: rt.TrustDomain, Owner: owner, Logger: rt.Logger,
		Endpoints: worker.Endpoints{
			ToolBroker: endpoint(rt, cfg.ToolBrokerAddress, "toolbroker"), ThreadState: state, Memory: state,
			FileBroker: endpoint(rt, cfg.FileBrokerAddress, "filebroker"), ModelProxy: endpoint(rt, cfg.ModelProxyAddress, "modelproxy"),
		},
	})
	return runs.New(runs.Config{
		Writer: writer, Guard: guard, IDs: ids, Agents: catalogue, Leases: leases, Files: filebrokerclient.New(conns["filebroker"]),
		Provider: provider, Environment: cfg.Environment, Owner: owner, Bounds: event.DefaultBounds(), Logger: rt.Logger,
		Meter: rt.Telemetry.MeterProvider.Meter("cofferdam"), BeatEvery: cfg.BeatEvery, TakeOverAfter: cfg.TakeOverAfter, CancelGrace: cfg.CancelGrace,
	})
}

func newAPI(cfg *Config, rt *service.Runtime, svc *runs.Service) (*api.API, error) {
	keys := authn.FileKeys(cfg.OIDCJWKS)
	if strings.HasPrefix(cfg.OIDCJWKS, "https://") {
		keys = authn.URLKeys(&http.Client{
			Timeout:       jwksTimeout,
			Transport:     &http.Transport{TLSHandshakeTimeout: jwksTimeout}, // no proxy from the environment
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}, cfg.OIDCJWKS)
	}
	verifier, err := authn.New(authn.Config{Issuer: cfg.OIDCIssuer, Audience: cfg.OIDCAudience, Algorithms: cfg.algorithms(), Keys: keys})
	if err != nil {
		return nil, err
	}
	authorizer, err := openfgaauthz.New(cfg.OpenFGA)
	if err != nil {
		return nil, err
	}
	return api.New(api.Config{Authn: verifier, Authz: authorizer, Runs: svc, Logger: rt.Logger}), nil
}

func newIDs(path string) (*binding.IDs, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("id key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("id key: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("id key: %s is not a regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("id key: %s has mode %04o, so that others may read it: chmod 0600", path, info.Mode().Perm())
	case info.Size() < minKeyBytes || info.Size() > maxKeyBytes:
		return nil, fmt.Errorf("id key: %s must hold %d to %d bytes", path, minKeyBytes, maxKeyBytes)
	}
	key, err := io.ReadAll(io.LimitReader(f, maxKeyBytes))
	if err != nil {
		return nil, fmt.Errorf("id key: %w", err)
	}
	return binding.NewIDs(key)
}

func endpoint(rt *service.Runtime, address, name string) rpc.Endpoint {
	return rpc.Endpoint{Address: address, ID: identity.Service(rt.TrustDomain, name)}
}
