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
	"cofferdam.dev/services/worker/internal/harness"
)

// healthTimeout bounds what ready asks.
const healthTimeout = 2 * time.Second

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

	mu        sync.Mutex
	bind      *Bind
	runtime   harness.Runtime
	connector Connector
	active    *Run
	outcomes  outcomes
	early     earlyCancels
	closed    bool
}

// New makes an unbound session.
func New(cfg Config) *Session {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Health == nil {
		cfg.Health = func(context.Context) error { return nil }
	}
	return &Session{
		cfg: cfg, desc: cfg.Adapter.Descriptor(),
		binding: make(chan struct{}, 1), stopped: make(chan struct{}),
		outcomes: outcomes{byRun: map[string]outcome{}},
	}
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
// within 2 s.
func (s *Session) Ready(ctx context.Context) Info {
	healthy := s.Check(ctx) == nil
	s.mu.Lock()
	defer s.mu.Unlock()
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
