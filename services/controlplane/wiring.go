package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect/v2"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/secretfile"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/api"
	"cofferdam.dev/services/controlplane/internal/authn"
	"cofferdam.dev/services/controlplane/internal/capabilityclient"
	"cofferdam.dev/services/controlplane/internal/filebrokerclient"
	"cofferdam.dev/services/controlplane/internal/harnesses"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/ratelimit"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/toolbrokerclient"
	"cofferdam.dev/services/controlplane/internal/ui"
	"cofferdam.dev/services/controlplane/internal/worker"
)

const (
	minKeyBytes = 32
	maxKeyBytes = 4 << 10
	jwksTimeout = 5 * time.Second

	clusterExitPatience = 15 * time.Second
)

// newProvider gives what sandboxes are claimed from, and starts to keep some of its
// own warm, if they are.
func newProvider(ctx context.Context, cfg *Config, rt *service.Runtime, workers worker.Dialer) (p provider, warm func(), err error) {
	switch cfg.Sandbox {
	case sandboxHost:
		p, err := dialHost(ctx, cfg, rt)
		return p, func() {}, err
	case sandboxCluster:
		p, err := newCluster(ctx, cfg, rt)
		return p, func() {}, err
	}
	own, err := cfg.provider(ctx, &cfg.Base, rt, func(ctx context.Context, in sandbox.Instance) error { return askReady(ctx, workers, in) })
	if err != nil {
		return nil, nil, err
	}
	return own, own.Warm, nil
}

var errNotReady = errors.New("the worker says that it is not ready")

// askReady asks the worker of an instance once.
func askReady(ctx context.Context, workers worker.Dialer, in sandbox.Instance) error {
	client, err := workers.Dial(in)
	if err != nil {
		return err
	}
	defer client.Close()
	ready, err := client.Ready(ctx)
	if err == nil && !ready.Ready {
		err = errNotReady
	}
	return err
}

// seedPatience is how long a start waits for the services that agents are seeded with.
const (
	seedPatience = time.Minute
	seedEvery    = 500 * time.Millisecond
)

// newAgents seeds the agents of the operator's file, and what they have of its folder.
func newAgents(ctx context.Context, cfg *Config, rt *service.Runtime, store agents.Store, c *harnesses.Catalogue, contents agents.Contents) (*agents.Registry, error) {
	folder := cfg.AgentFolder
	if folder == "" {
		folder = filepath.Dir(cfg.Agents)
	}
	file, err := agents.Load(cfg.Agents, folder)
	if err != nil {
		return nil, err
	}
	r := agents.NewRegistry(store, c, contents, rt.Logger, time.Now)
	if err := seed(ctx, r, file); err != nil {
		return nil, fmt.Errorf("--agents: %s: %w", cfg.Agents, err)
	}
	return r, nil
}

// seed waits for a service that is not there yet: all of them may be starting.
func seed(ctx context.Context, r *agents.Registry, file []agents.Draft) error {
	patience := time.NewTimer(seedPatience)
	defer patience.Stop()
	for {
		err := r.Seed(ctx, file)
		if !fault.Is(err, fault.DependencyUnavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-patience.C:
			return err
		case <-time.After(seedEvery):
		}
	}
}

// connections are those to the services that the control plane asks as itself.
type connections struct{ capability, toolBroker, fileBroker *connect.Client }

func dialServices(cfg *Config, rt *service.Runtime) (c connections, err error) {
	for _, d := range []struct {
		to            **connect.Client
		name, address string
	}{
		{&c.capability, "capability", cfg.CapabilityAddress}, {&c.toolBroker, "toolbroker", cfg.ToolBrokerAddress}, {&c.fileBroker, "filebroker", cfg.FileBrokerAddress},
	} {
		if *d.to, err = endpoint(rt, d.address, d.name).Dial(rt.Source, rt.Telemetry); err != nil {
			return c, err
		}
	}
	return c, nil
}

func newRuns(cfg *Config, rt *service.Runtime, writer *binding.Writer, provider provider, workers worker.Dialer, registry *agents.Registry, conns connections, brokered *filebrokerclient.Client) (*runs.Service, error) {
	ids, err := newIDs(cfg.IDKeyFile)
	if err != nil {
		return nil, err
	}
	// Another process, also one that is started again, never has this name.
	owner := cfg.Replica + "-" + rand.Text()
	guard := fence.NewGuard(writer, time.Now)
	inside := func(name string) rpc.Endpoint { return endpoint(rt, provider.Address(name), name) }
	tools := toolbrokerclient.New(conns.toolBroker)
	var svc *runs.Service // made below: the two need each other
	leases := lease.New(lease.Config{
		Writer: writer, Guard: guard, Provider: provider, Workers: workers,
		Minter: capabilityclient.New(conns.capability), Tools: tools, Contents: brokered,
		TrustDomain: rt.TrustDomain, Owner: owner, Tracer: rt.Telemetry.Tracer, Logger: rt.Logger, Replaced: func(rec binding.Record) { svc.Replaced(rec) },
		Endpoints: worker.Endpoints{
			ToolBroker: inside("toolbroker"), ThreadState: inside("statefacade"), Memory: inside("statefacade"),
			FileBroker: inside("filebroker"), ModelProxy: inside("modelproxy"),
		},
	})
	svc, err = runs.New(runs.Config{
		Writer: writer, Guard: guard, IDs: ids, Agents: registry, Leases: leases, Files: brokered, Tools: tools,
		Provider: provider, Environment: cfg.Environment, Owner: owner, Bounds: event.DefaultBounds(), Logger: rt.Logger,
		Meter: rt.Telemetry.MeterProvider.Meter("cofferdam"), BeatEvery: cfg.BeatEvery, TakeOverAfter: cfg.TakeOverAfter, CancelGrace: cfg.CancelGrace, IdleAfter: cfg.IdleAfter,
		KeepEvents: cfg.KeepEvents, ExitPatience: exitPatience(cfg),
	})
	return svc, err
}

// exitPatience is longer for a cluster, where a node tells the API server of a container that
// has ended, which tells the provider.
func exitPatience(cfg *Config) time.Duration {
	if cfg.Sandbox == sandboxCluster {
		return clusterExitPatience
	}
	return runs.DefaultExitPatience
}

func newAPI(cfg *Config, rt *service.Runtime, svc *runs.Service, registry *agents.Registry, c *harnesses.Catalogue, authorizer api.Authorizer) (*api.API, error) {
	keys := authn.FileKeys(cfg.OIDCJWKS)
	if strings.HasPrefix(cfg.OIDCJWKS, "https://") {
		keys = authn.URLKeys(&http.Client{
			Timeout:       jwksTimeout,
			Transport:     &http.Transport{TLSHandshakeTimeout: jwksTimeout}, // no proxy from the environment
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}, cfg.OIDCJWKS)
	}
	tokens := authn.Config{Issuer: cfg.OIDCIssuer, Audience: cfg.OIDCAudience, Algorithms: cfg.algorithms(), Keys: keys}
	verifier, err := authn.New(tokens)
	if err != nil {
		return nil, err
	}
	// The code of a link to the page for people is no token, and a token no code.
	tokens.Audience += ui.AudienceSuffix
	links, err := authn.New(tokens)
	if err != nil {
		return nil, err
	}
	return api.New(api.Config{
		Authn: verifier, Authz: authorizer, Runs: svc, Agents: registry, Harnesses: c, Limits: ratelimit.New(cfg.Limits),
		Sessions: ui.NewSessions(links, verifier, time.Now), Logger: rt.Logger,
	}), nil
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
	case info.Size() < minKeyBytes || info.Size() > maxKeyBytes:
		return nil, fmt.Errorf("id key: %s must hold %d to %d bytes", path, minKeyBytes, maxKeyBytes)
	}
	if err := secretfile.Private(info); err != nil {
		return nil, fmt.Errorf("id key: %s: %w", path, err)
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
