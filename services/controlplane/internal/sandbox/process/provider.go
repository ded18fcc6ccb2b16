// Package process is the sandbox provider for one machine: each instance is a
// process of its own.
//
// In this version the process has no inherited environment and no inherited
// descriptors but its listener, a working directory of its own, and ends with
// the control plane. It has no isolation layer yet, and Weaknesses says so.
//
// # What is left of an instance
//
// Nothing. When it ends, by itself or by Release, its process group is ended
// first, then its workspace is removed, then its identity is taken back: in this
// order nothing that still runs loses its files or its name, and nothing else
// ever gets them. What cannot be done is tried again until it is; only then is the
// claim gone. Logs stay, bounded in size and number.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/services/controlplane/internal/sandbox"
)

const (
	// DefaultMaxInstances bounds how many sandboxes live at once.
	DefaultMaxInstances = 64
	// startTimeout bounds the making of an instance, its identity included.
	startTimeout = 15 * time.Second
	// stopGrace is how long an instance may take to end by itself.
	stopGrace = 2 * time.Second
	// cleanUpTimeout bounds one attempt to remove what an instance left.
	cleanUpTimeout = 5 * time.Second
	// exitsBuffer holds exits that nobody has read yet. What does not fit is found
	// out when the lease is used again, by Alive.
	exitsBuffer = 256
)

// Identities gives an instance its SPIFFE identity.
type Identities interface {
	// Register makes a Workload API that serves only the instance's identity,
	// and gives its address. A failure with the code sandbox_capacity says that
	// there are too many.
	Register(ctx context.Context, instanceUID string) (workloadAPI string, err error)
	// Deregister ends it; repeatable, and also right where Register failed.
	Deregister(ctx context.Context, instanceUID string) error
}

// Config of a Provider.
type Config struct {
	// WorkerPath is the worker's binary; its SHA-256 is the image digest. It is read
	// by New: another binary under this name is not used before the next start.
	WorkerPath string
	// WorkerArgs are given to every worker. They are public: no secrets.
	WorkerArgs []string
	// Workspaces is the folder in which each instance gets a folder of its own
	// for as long as it lives. Only one Provider at a time can use it.
	Workspaces string
	// LogDir takes what workers write to their standard error.
	LogDir      string
	TrustDomain spiffeid.TrustDomain
	Identities  Identities
	// MaxInstances bounds how many live at once; 0 is DefaultMaxInstances.
	MaxInstances int
	Logger       *slog.Logger
}

// Provider starts workers as processes.
type Provider struct {
	cfg        Config
	digest     string
	workspaces *workspaces
	exits      chan sandbox.Exit
	// life is that of the instances, which outlive the calls that make them.
	life context.Context //nolint:containedctx // no call has the life of an instance
	// closing is closed when no instance may be made any more.
	closing chan struct{}
	close   func() error
	wg      sync.WaitGroup

	mu        sync.Mutex
	instances map[string]*instance // by claim name, until nothing is left of them
	closed    bool
	left      []error // what could not be cleaned up before the end
}

var _ sandbox.Provider = (*Provider)(nil)

// New makes a Provider. It reads the worker's binary once, for its digest, and
// removes the workspaces of instances that ended with an earlier control plane.
func New(cfg Config) (_ *Provider, err error) {
	if cfg.MaxInstances <= 0 {
		cfg.MaxInstances = DefaultMaxInstances
	}
	for _, path := range []*string{&cfg.WorkerPath, &cfg.Workspaces, &cfg.LogDir} {
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	digest, err := fileDigest(cfg.WorkerPath)
	if err != nil {
		return nil, fmt.Errorf("worker binary: %w", err)
	}
	if err := os.MkdirAll(cfg.LogDir, 0o700); err != nil {
		return nil, fmt.Errorf("worker logs: %w", err)
	}
	ws, err := openWorkspaces(cfg.Workspaces)
	if err != nil {
		return nil, fmt.Errorf("workspaces: %w", err)
	}
	life, end := context.WithCancel(context.Background())
	p := &Provider{
		cfg: cfg, digest: digest, workspaces: ws, exits: make(chan sandbox.Exit, exitsBuffer),
		life: life, closing: make(chan struct{}), instances: map[string]*instance{},
	}
	p.close = sync.OnceValue(func() error { return p.shut(end) })
	return p, nil
}

// Weaknesses names the isolation layers that this version does not have.
func (p *Provider) Weaknesses() []string {
	return []string{
		"user namespace", "pid namespace", "mount namespace with a read-only root", "network namespace", "ipc namespace",
		"uts namespace", "no-new-privileges", "seccomp", "Landlock", "cgroup limits",
	}
}

// Exits tells of instances that went away by themselves.
func (p *Provider) Exits() <-chan sandbox.Exit { return p.exits }

// Close ends all instances and waits for them. Its error is what could not be
// cleaned up.
func (p *Provider) Close() error { return p.close() }

func (p *Provider) shut(end context.CancelFunc) error {
	p.mu.Lock()
	p.closed = true
	for _, in := range p.instances {
		in.releaseLocked()
	}
	p.mu.Unlock()
	close(p.closing)
	p.wg.Wait()
	end()
	close(p.exits)
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(append(p.left, p.workspaces.close())...)
}
