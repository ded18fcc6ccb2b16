// Package process is the sandbox provider for one machine: each instance is a
// process of its own, behind the walls of package isolation and within the bounds
// of package cgroup.
//
// A worker has no network. It listens at a Unix socket that it inherits and that
// the control plane alone can reach, and it finds the services that it may call as
// Unix sockets inside, beside the Workload API of its own instance.
//
// # Warm instances
//
// For each profile some instances are kept ready that are nobody's. A claim takes
// one for itself alone, or makes one where there is none; what was claimed is never
// given again. Identity comes with the start of an instance, everything else with
// bind, after the claim.
//
// # What is left of an instance
//
// Nothing. When it ends, by itself or by Release, its processes are ended first,
// then its groups and files are removed, then its identity is taken back: in this
// order nothing that still runs loses its files or its name, and nothing else ever
// gets them. What cannot be done is tried again until it is; only then is the claim
// gone. Logs stay, bounded in size and number. What a control plane left that was
// killed is removed by the next one.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/cgroup"
	"cofferdam.dev/pkg/isolation"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

const (
	// DefaultMaxInstances bounds how many sandboxes live at once.
	DefaultMaxInstances = 64
	// startTimeout bounds the making of an instance, its identity included, and then
	// the time until a warm one is ready.
	startTimeout = 15 * time.Second
	// stopGrace is how long an instance may take to end by itself. A worker that was
	// replaced has ended within two seconds of that.
	stopGrace = 1500 * time.Millisecond
	// cleanUpTimeout bounds one attempt to remove what an instance left.
	cleanUpTimeout = 5 * time.Second
	// probeTimeout bounds the look at what the machine allows.
	probeTimeout = 30 * time.Second
	// exitsBuffer holds exits that nobody has read yet. What does not fit is found
	// out when the lease is used again, by Alive.
	exitsBuffer = 256
)

// Identities gives an instance its SPIFFE identity.
type Identities interface {
	// Register makes a Workload API that serves only the instance's identity, to
	// processes of the user peer alone, and gives its address. A failure with the code
	// sandbox_capacity says that there are too many.
	Register(ctx context.Context, instanceUID string, peer uint32) (workloadAPI string, err error)
	// Deregister ends it; repeatable, and also right where Register failed.
	Deregister(ctx context.Context, instanceUID string) error
}

// Config of a Provider.
type Config struct {
	// LauncherPath is the program that makes sandboxes (isolation.Main).
	LauncherPath string
	// WorkerPath is the worker's binary; its SHA-256 is the image digest. It is read
	// by New: another binary under this name is not used before the next start.
	WorkerPath string
	// RunnerPath is the runner of hosted programs; required where a profile has one.
	RunnerPath string
	// WorkerArgs are given to every worker. They are public: no secrets.
	WorkerArgs []string
	// RunnerArgs are the same for every runner.
	RunnerArgs []string
	// Profiles are the kinds of sandboxes; at least one.
	Profiles []Profile
	// Sockets is the folder with the sockets of Services.
	Sockets string
	// Dir is the folder of the workers' own sockets. Only one Provider at a time can
	// use it, and nobody else can enter it.
	Dir string
	// LogDir takes what workers write to their standard error.
	LogDir      string
	TrustDomain spiffeid.TrustDomain
	Identities  Identities
	// Ready asks an instance whether it is ready, once; an error says no. Nil takes
	// every instance for ready that listens.
	Ready func(ctx context.Context, in sandbox.Instance) error
	// MaxInstances bounds how many live at once; 0 is DefaultMaxInstances.
	MaxInstances int
	// MaxPerHarness bounds how many of one harness live at once, over all profiles that
	// run it; a harness that is not named has MaxInstances.
	MaxPerHarness map[string]int
	// MaxIdle is how long a warm instance may wait for its claim before another one
	// takes its place; 0 is DefaultMaxIdle.
	MaxIdle time.Duration
	Logger  *slog.Logger
}

// Provider starts workers as processes.
type Provider struct {
	cfg      Config
	digest   string
	folder   *folder
	launcher *isolation.Launcher
	cgroups  *cgroup.Manager
	ids      *hostIDs // nil where ids are the caller's own
	// weaknesses are for people; without and bounded are what they mean: the layers to
	// leave out, and whether the number of processes can be bounded by a group.
	weaknesses []string
	without    []isolation.Layer
	bounded    bool
	exits      chan sandbox.Exit
	// life is that of the instances, which outlive the calls that make them.
	life context.Context //nolint:containedctx // no call has the life of an instance
	// closing is closed when no instance may be made any more.
	closing chan struct{}
	close   func() error
	wg      sync.WaitGroup
	// making bounds how many instances are started at once: more of them only wait
	// for the processors.
	making chan struct{}

	mu     sync.Mutex
	all    map[string]*instance // by uid, until nothing is left of them
	claims map[string]*instance // the same by claim name
	warm   map[*Profile]*pool
	closed bool
	left   []error // what could not be cleaned up before the end
}

var _ sandbox.Provider = (*Provider)(nil)

// New makes a Provider. It reads the worker's binary once, for its digest, finds
// out what the machine allows, and ends and removes what an earlier control plane
// left. Nothing is started before Warm or the first claim.
func New(ctx context.Context, cfg Config) (_ *Provider, err error) {
	cfg.MaxInstances = max(cfg.MaxInstances, 0)
	orDefault(&cfg.MaxInstances, DefaultMaxInstances)
	orDefault(&cfg.MaxIdle, DefaultMaxIdle)
	if err := cfg.resolve(); err != nil {
		return nil, err
	}
	p := &Provider{
		cfg: cfg, exits: make(chan sandbox.Exit, exitsBuffer), closing: make(chan struct{}),
		making: make(chan struct{}, startsAtOnce()),
		all:    map[string]*instance{}, claims: map[string]*instance{}, warm: map[*Profile]*pool{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.giveBack())
		}
	}()
	if p.digest, err = fileDigest(cfg.WorkerPath); err != nil {
		return nil, fmt.Errorf("worker binary: %w", err)
	}
	if err := os.MkdirAll(cfg.LogDir, 0o700); err != nil {
		return nil, fmt.Errorf("worker logs: %w", err)
	}
	if p.folder, err = openFolder(cfg.Dir); err != nil {
		return nil, fmt.Errorf("sandbox folder: %w", err)
	}
	if p.cgroups, err = cgroup.Open(ctx); err != nil {
		return nil, err
	}
	for _, left := range p.cgroups.Leftovers() { // the next start tries again
		p.cfg.Logger.WarnContext(ctx, "an earlier sandbox left a group that cannot be removed", "group", left.Dir, "error", left.Err.Error())
	}
	if err := p.probe(ctx); err != nil {
		return nil, err
	}
	if err := p.checkConfigs(); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	p.life = life
	p.close = sync.OnceValue(func() error { return p.shut(end) })
	return p, nil
}

// Weaknesses names the layers that this machine does not allow, and what to do
// about each. Sandboxes are made without them, and without nothing else.
func (p *Provider) Weaknesses() []string { return slices.Clone(p.weaknesses) }

// Exits tells of instances that went away by themselves.
func (p *Provider) Exits() <-chan sandbox.Exit { return p.exits }

// Close ends all instances and waits for them. Its error is what could not be
// cleaned up.
func (p *Provider) Close() error { return p.close() }

func (p *Provider) shut(end context.CancelFunc) error {
	p.mu.Lock()
	p.closed = true
	for _, in := range p.all {
		in.releaseLocked()
	}
	p.mu.Unlock()
	close(p.closing)
	p.wg.Wait()
	end()
	close(p.exits)
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(append(p.left, p.giveBack())...)
}

// giveBack gives up what New took.
func (p *Provider) giveBack() error {
	errs := []error{p.ids.close()}
	if p.launcher != nil {
		errs = append(errs, p.launcher.Close())
	}
	if p.cgroups != nil {
		errs = append(errs, p.cgroups.Close())
	}
	if p.folder != nil {
		errs = append(errs, p.folder.close())
	}
	return errors.Join(errs...)
}
