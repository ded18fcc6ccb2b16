// Package kubernetes is the sandbox provider for a cluster: each claim is a
// SandboxClaim of agent-sandbox (v1beta1) against an operator's warm pool.
//
// It creates, reads and deletes claims, reads the sandboxes and pods of one namespace,
// and needs no other right. What a worker is told comes by bind, after the claim: a
// claim has no environment, and its name and labels are digests.
//
// # Who answers to a claim
//
// Exactly one Sandbox, which the claim controls and names, and exactly one pod, which
// that Sandbox controls; all of it by UID. More than one, or another one, is
// sandbox_evicted: the lease is replaced, and the claim given back. The pod must be
// what the profile says, down to the digest of its image and a signature of that
// digest, each time it is claimed, the first time and for every later turn; what is
// not is worker_mismatch, and its claim is deleted.
//
// # Caches
//
// Informers say when to look, how a pod ended, and how full the pools are. Nothing is
// given, refused, or deleted before the API server was asked.
//
// # When the API server is away
//
// Claims that this process has verified are given again as they were: the worker
// proves by its SVID that it is the pod of that UID, and by its nonce that it was not
// started again. All other claims are sandbox_capacity. Deletions fail and are tried
// again by who asked for them.
//
// # Several replicas, and restarts
//
// The claims are the cluster's. Close ends none of them, and each replica sees those of
// all others with the same environment and trust domain.
package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.opentelemetry.io/otel/metric"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"cofferdam.dev/services/controlplane/internal/harnesses"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

const (
	// exitsBuffer holds exits that nobody has read yet.
	exitsBuffer = 256
	// syncTimeout is how long New waits for its caches. Without them it only looks
	// more seldom.
	syncTimeout = 10 * time.Second
	// DefaultResync is how often what the caches hold is looked at again.
	DefaultResync = 5 * time.Minute
)

// API is how the cluster is reached.
type API struct {
	Custom dynamic.Interface
	Core   kubernetes.Interface
}

// Dial makes an API from a kubeconfig file, or for a pod where that is empty. No
// request is made.
func Dial(kubeconfig string) (API, error) {
	var cfg *rest.Config
	var err error
	if kubeconfig == "" {
		cfg, err = rest.InClusterConfig()
	} else {
		cfg, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return API{}, fmt.Errorf("kubernetes: %w", err)
	}
	cfg.UserAgent = "cofferdam-controlplane"
	cfg.QPS = -1 // the API server's own fairness bounds clients, and tells them when to come again
	var api API
	if api.Custom, err = dynamic.NewForConfig(cfg); err != nil {
		return API{}, fmt.Errorf("kubernetes: %w", err)
	}
	if api.Core, err = kubernetes.NewForConfig(cfg); err != nil {
		return API{}, fmt.Errorf("kubernetes: %w", err)
	}
	return api, nil
}

// Config of a Provider.
type Config struct {
	API API
	// Namespace of pools, claims, sandboxes and pods.
	Namespace string
	// Environment and TrustDomain tell the claims of one installation from those of
	// another in the same namespace.
	Environment string
	TrustDomain spiffeid.TrustDomain
	Profiles    []Profile
	// Addresses are where a sandbox finds the services, by name.
	Addresses map[string]string
	// Resync is DefaultResync if 0.
	Resync time.Duration
	Meter  metric.Meter
	Logger *slog.Logger
}

// Provider claims sandboxes in a cluster.
type Provider struct {
	cfg    Config
	api    client
	caches *caches
	making making
	bell   *bell
	exits  *exits
	traces *traces
	gauges metric.Registration
	close  func() error
}

var _ sandbox.Provider = (*Provider)(nil)

// New makes a Provider and waits for its caches, for a while: an API server that is
// away keeps no control plane from starting.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	orDefault(&cfg.Resync, DefaultResync)
	p := &Provider{
		cfg: cfg, bell: newBell(), exits: newExits(cfg.Logger), traces: newTraces(),
		api: client{API: cfg.API, namespace: cfg.Namespace, environment: environmentDigest(cfg.Environment, cfg.TrustDomain)},
	}
	caches, err := newCaches(p.api, cfg.Resync, cfg.Logger, listeners{p.bell, p.exits, p.traces, &p.making})
	if err != nil {
		return nil, err
	}
	p.caches = caches
	if p.gauges, err = p.registerGauges(cfg.Meter); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	for _, run := range caches.all() {
		wg.Go(func() { run.RunWithContext(life) })
	}
	p.close = sync.OnceValue(func() error {
		end()
		wg.Wait()
		p.exits.close()
		return p.gauges.Unregister()
	})
	waiting, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !caches.synced(waiting) {
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), p.close())
		}
		cfg.Logger.WarnContext(ctx, "the Kubernetes API does not answer yet; nothing can be claimed before it does", "namespace", cfg.Namespace)
	}
	return p, nil
}

// environmentDigest is the label of an installation's claims.
func environmentDigest(environment string, td spiffeid.TrustDomain) string {
	sum := sha256.Sum256([]byte("cofferdam sandbox claims\x00" + td.Name() + "\x00" + environment))
	return hex.EncodeToString(sum[:16])
}

// Exits implements sandbox.Provider, for the instances that this process has given. A
// release by another replica is told as well.
func (p *Provider) Exits() <-chan sandbox.Exit { return p.exits.told }

// Weaknesses implements sandbox.Provider.
func (p *Provider) Weaknesses() []string {
	var out []string
	for i := range p.cfg.Profiles {
		if profile := &p.cfg.Profiles[i]; profile.Unsigned && !profile.Disabled {
			out = append(out, fmt.Sprintf("profile %s runs images that nobody has to have signed: give it a signature", profile.Name))
		}
	}
	return out
}

// Describe gives what each profile runs, as its description file says.
func (p *Provider) Describe(context.Context) *harnesses.Catalogue {
	var entries []harnesses.Entry
	for i := range p.cfg.Profiles {
		entries = append(entries, p.cfg.Profiles[i].entry)
	}
	return harnesses.New(entries...)
}

// Address is where a sandbox finds a service.
func (p *Provider) Address(service string) string { return p.cfg.Addresses[service] }

// Close implements sandbox.Provider, but for the instances: they are the cluster's.
func (p *Provider) Close() error { return p.close() }
