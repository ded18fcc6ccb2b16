// Package session is the worker's life: bound once, one run at a time, ended
// once (Sandbox Worker Protocol v1, "Operations").
package session

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/toolschema"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/manifest"
	"cofferdam.dev/services/worker/internal/middleware"
)

// healthTimeout bounds what ready asks.
const healthTimeout = 2 * time.Second

// Defaults of a Config.
const (
	// DefaultStopTimeout is how long a harness may take to stop.
	DefaultStopTimeout = 10 * time.Second
	// DefaultUnboundTimeout is how long an unbound worker waits for a control plane.
	DefaultUnboundTimeout = 10 * time.Minute
)

// Config of a Session.
type Config struct {
	Adapter harness.Adapter
	// ImageDigest is sha256:… of this worker.
	ImageDigest string
	// BootNonce is random per process.
	BootNonce string
	// Bounds of a run's events; zero fields are the contract's.
	Bounds event.Bounds
	// Health is what ready asks besides the adapter, such as the workspace; nil
	// asks nothing. It is quick and has no effects.
	Health func(context.Context) error
	// Workspace is the folder that manifests are materialized in; "" is a worker
	// that takes none.
	Workspace string
	// StopTimeout is how long a harness may take to stop once its run is over, and
	// cancelled or past its deadline. One that takes longer cannot be trusted to be
	// quiet: its run ends as sandbox_limit, and the worker ends itself. 0 is 10 s.
	StopTimeout time.Duration
	// UnboundTimeout is how long a worker that nobody has bound waits without a
	// control plane that asks for ready; then it ends itself. 0 is 10 min.
	UnboundTimeout time.Duration
	// Lost is closed when the world of the adapter's program is gone; nil is an
	// adapter without one. A run that fails then fails as sandbox_evicted, and the
	// worker ends itself: nothing that it could do would bring the world back.
	Lost   <-chan struct{}
	Logger *slog.Logger
	// Now is the clock of timestamps; nil is time.Now.
	Now func() time.Time
}

// Session is the state of one worker. It is safe for concurrent use.
type Session struct {
	cfg  Config
	desc harness.Descriptor
	// binding is held by the one Bind that is under way: building a runtime may
	// take long, and the worker answers meanwhile.
	binding chan struct{}
	// stopped is closed once the worker was shut down.
	stopped chan struct{}
	// unbound ends a worker that nobody binds.
	unbound *time.Timer

	mu      sync.Mutex
	bind    *Bind
	built   built
	active  *Run
	pending pendingInterrupt
	// outcomes of the runs that have ended, and cancels of those that have not begun.
	outcomes outcomes
	early    earlyCancels
	// closed says that nothing begins any more, ending that Shutdown was called.
	closed, ending bool
}

// built is what bind made of its construction data. The zero value is that of an
// unbound worker.
type built struct {
	runtime   harness.Runtime
	connector Connector
	manifest  *manifest.Materialized
	// policy is put around the facades of every run.
	policy middleware.Chain
	// schemas of the tools' arguments, by tool id.
	schemas map[string]*toolschema.Schema
}

// New makes an unbound session. Whoever makes one has to shut it down.
func New(cfg Config) *Session {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Health == nil {
		cfg.Health = func(context.Context) error { return nil }
	}
	if cfg.StopTimeout <= 0 {
		cfg.StopTimeout = DefaultStopTimeout
	}
	if cfg.UnboundTimeout <= 0 {
		cfg.UnboundTimeout = DefaultUnboundTimeout
	}
	s := &Session{
		cfg: cfg, desc: cfg.Adapter.Descriptor(),
		binding: make(chan struct{}, 1), stopped: make(chan struct{}),
		outcomes: outcomes{byRun: map[string]outcome{}},
	}
	s.mu.Lock() // the timer may be ahead
	defer s.mu.Unlock()
	s.unbound = time.AfterFunc(cfg.UnboundTimeout, s.abandoned)
	if cfg.Lost != nil {
		go s.watchWorld()
	}
	return s
}

// Info is what ready says.
type Info struct {
	Ready          bool
	HarnessID      string
	AdapterVersion string
	ImageDigest    string
	BootNonce      string
	Bound          bool
}

// Ready asks the adapter's health and makes no model or tool call. It answers
// within 2 s. Whoever asks is a control plane: an unbound worker waits for one
// anew.
func (s *Session) Ready(ctx context.Context) Info {
	healthy := s.Check(ctx) == nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waitForBind()
	return Info{
		Ready: healthy && !s.closed, HarnessID: s.desc.ID, AdapterVersion: s.desc.AdapterVersion,
		ImageDigest: s.cfg.ImageDigest, BootNonce: s.cfg.BootNonce, Bound: s.bind != nil,
	}
}

// Check is why the worker is not ready, or nil.
func (s *Session) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if err := s.cfg.Health(ctx); err != nil {
		return err
	}
	return s.cfg.Adapter.Health(ctx)
}

// Committed makes the session the fence's reader: what a worker is bound to is
// all that it takes.
func (s *Session) Committed(_ context.Context, bindingID string) (fence.Committed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bind == nil || s.bind.Envelope.BindingID != bindingID {
		return fence.Committed{}, fence.ErrUnknownBinding
	}
	e := s.bind.Envelope
	return fence.Committed{BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation}, nil
}

// Authority is what every frame of events repeats.
type Authority struct {
	// CapabilityID is the jti of the capability that bound the worker.
	CapabilityID string
	BootNonce    string
}

// Authority of the bound worker.
func (s *Session) Authority() Authority {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := Authority{BootNonce: s.cfg.BootNonce}
	if s.bind != nil {
		a.CapabilityID = s.bind.Capability.ID
	}
	return a
}
