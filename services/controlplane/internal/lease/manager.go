// Package lease keeps, for each binding, the one sandbox that its runs happen
// in: claim, ready, bind, replace. A replacement commits the higher generation
// before anything new is claimed (the contract's fencing file, write 6).
package lease

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// Bounds of one attempt to get a bound worker.
const (
	claimTimeout = 30 * time.Second
	readyTimeout = 20 * time.Second
	// boundReadyTimeout is for a worker that was ready before: one that does not
	// answer soon is deaf, and replaced.
	boundReadyTimeout = 2 * time.Second
	readyEvery        = 25 * time.Millisecond
	// aliveEvery is after how many unanswered ready the provider is asked whether
	// there still is somebody to answer.
	aliveEvery     = 20
	toolsTimeout   = 5 * time.Second
	mintTimeout    = 10 * time.Second
	bindTimeout    = 15 * time.Second
	releaseTimeout = 5 * time.Second
	// maxGenerations is how many leases one run may use up before it gives up.
	maxGenerations = 3
)

// Config of a Manager.
type Config struct {
	Writer      *binding.Writer
	Guard       *fence.Guard
	Provider    sandbox.Provider
	Workers     worker.Dialer
	Minter      Minter
	Tools       ToolLister
	Contents    Contents
	TrustDomain spiffeid.TrustDomain
	// Owner is this replica and its incarnation.
	Owner     string
	Endpoints worker.Endpoints
	// Replaced is told of each record whose lease a run has replaced, so that the old
	// sandbox ends at once. Nil leaves it to the next sweep.
	Replaced func(binding.Record)
	// Tracer makes the spans sandbox.claim, from the claim to its instance,
	// sandbox.ready and sandbox.bind, up to the worker's answer. Nil makes none.
	Tracer trace.Tracer
	Logger *slog.Logger
}

// Manager gets workers for runs.
type Manager struct{ cfg Config }

// New makes a Manager.
func New(cfg Config) *Manager {
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	return &Manager{cfg: cfg}
}

// step begins a span about a claim, which is a digest already.
func (m *Manager) step(ctx context.Context, name, claim string) (context.Context, func()) {
	ctx, span := m.cfg.Tracer.Start(ctx, name, trace.WithAttributes(attribute.String("cofferdam.sandbox_digest", claim)))
	return ctx, func() { span.End() }
}

// Held is a bound worker, for one run of one generation.
type Held struct {
	Client worker.Client
	Record binding.Record
	Grant  fence.Grant
	// Token is the run's capability for harness-worker.
	Token worker.Token
	// CallTokens are what the worker still has to be given with the start; empty
	// when they came with bind.
	CallTokens []worker.Token
}

// Request is what a run needs.
type Request struct {
	Agent    agents.Agent
	Envelope fence.Envelope
	// Handles makes the handles that the worker may use at the file broker, under
	// the generation that the run has by then: it is called again when the run is
	// carried over. Nil makes none.
	Handles func(ctx context.Context, env fence.Envelope) ([]string, error)
}

// Acquire gives a living, bound worker for the committed run of the envelope.
// It uses the binding's lease while its instance lives, and replaces it
// otherwise. The envelope's generation may have risen when it returns: use the
// one of the Grant. Whoever gets a Held closes its Client.
//
// Errors: stale_lease (the run is not committed any more), cancelled (its end is
// decided), sandbox_evicted (it had done something, and so was not carried over
// to another sandbox), sandbox_capacity, sandbox_not_ready, worker_mismatch,
// protocol_unsupported, protocol, dependency_unavailable, what the worker says to
// bind, and those of ctx.
func (m *Manager) Acquire(ctx context.Context, req Request) (Held, error) {
	var last error
	for range maxGenerations {
		rec, err := m.load(ctx, req.Envelope)
		if err != nil {
			return Held{}, err
		}
		if rec, err = m.usable(ctx, rec, req); err != nil {
			return Held{}, err
		}
		req.Envelope.Generation = rec.Generation
		held, err := m.hold(ctx, rec, req)
		if err == nil {
			return held, nil
		}
		m.letGo(ctx, rec.ID, rec.Lease.ClaimName)
		if ctx.Err() != nil || !worthAnother(err) && !outdated(rec.Lease, err) {
			return Held{}, err
		}
		last = err
		m.cfg.Logger.WarnContext(ctx, "sandbox could not be used; it is replaced", "generation", rec.Generation, "error", err.Error())
		if _, err := m.carryOver(ctx, rec, req); err != nil && !errors.Is(err, binding.ErrFenced) {
			return Held{}, err
		}
	}
	return Held{}, last
}

// worthAnother tells failures of one sandbox from those that another one would
// meet as well.
func worthAnother(err error) bool {
	switch fault.CodeOf(err) {
	case fault.SandboxNotReady, fault.SandboxEvicted, fault.BindingConflict, fault.Unauthenticated:
		return true
	default:
		return false
	}
}

// outdated says that a sandbox which was right for earlier runs is not any more:
// the operator has changed the image or the profile since, or the agent its harness.
// The next one is made of what holds now. One that was never used, and is wrong
// already, has no better one behind it.
func outdated(l *binding.Lease, err error) bool {
	return l.InstanceUID != "" && fault.Is(err, fault.WorkerMismatch)
}

// load reads the record and sees that the run is still to be driven.
func (m *Manager) load(ctx context.Context, env fence.Envelope) (binding.Record, error) {
	const op = "lease.load"
	rec, err := m.cfg.Writer.Backend().Load(ctx, env.BindingID)
	switch {
	case errors.Is(err, binding.ErrNotFound):
		return rec, fault.Wrap(err, fault.StaleLease, op)
	case err != nil && ctx.Err() != nil:
		return rec, fault.From(ctx.Err(), op)
	case err != nil:
		return rec, fault.Wrap(err, fault.DependencyUnavailable, op)
	case rec.Epoch != env.Epoch, rec.Run == nil, rec.Run.ID != env.RunID:
		return rec, fault.New(fault.StaleLease, op)
	case !rec.Run.End.Open():
		return rec, fault.New(fault.Cancelled, op)
	}
	return rec, nil
}

// usable gives the record with a lease that is worth trying: the one that
// stands, if its instance lives, else the next generation.
func (m *Manager) usable(ctx context.Context, rec binding.Record, req Request) (binding.Record, error) {
	switch l := rec.Lease; {
	case l == nil:
	case l.InstanceUID == "":
		return rec, nil // committed, not claimed yet as far as is known
	default:
		alive, err := m.cfg.Provider.Alive(ctx, l.ClaimName, l.InstanceUID)
		if err != nil {
			return rec, fault.From(err, "lease.usable")
		}
		if alive {
			return rec, nil
		}
	}
	return m.carryOver(ctx, rec, req)
}

// carryOver commits the next generation for a run. A run that had done something
// is not taken there, and its end is decided with that.
func (m *Manager) carryOver(ctx context.Context, rec binding.Record, req Request) (binding.Record, error) {
	next, err := m.Replace(ctx, rec, req.Agent.Profile)
	if err != nil {
		return rec, fault.From(err, "lease.carryOver")
	}
	if m.cfg.Replaced != nil {
		m.cfg.Replaced(next)
	}
	if next.Run == nil || next.Run.ID != req.Envelope.RunID {
		return rec, fault.New(fault.SandboxEvicted, "lease.carryOver")
	}
	return next, nil
}

// Replace commits the next generation. The lease that stood, and a run that had
// done anything, move to ending, for the concluder.
func (m *Manager) Replace(ctx context.Context, rec binding.Record, profile string) (binding.Record, error) {
	return m.cfg.Writer.Replace(ctx, rec.ID, rec.Epoch, rec.Generation,
		func(g uint32) string { return binding.ClaimName(rec.ID, g) }, profile)
}

// ReplaceIdle is Replace where no run is active, which the write itself asks.
func (m *Manager) ReplaceIdle(ctx context.Context, rec binding.Record, profile string) (binding.Record, error) {
	return m.cfg.Writer.ReplaceIdle(ctx, rec.ID, rec.Epoch, rec.Generation,
		func(g uint32) string { return binding.ClaimName(rec.ID, g) }, profile)
}

// Lifecycle gets the capability for cancel, interrupt and shutdown of the
// worker in an instance: for harness-worker and without a run.
func (m *Manager) Lifecycle(ctx context.Context, env fence.Envelope, instanceUID string) (worker.Token, error) {
	env.RunID = ""
	tokens, err := m.tokens(ctx, env, instanceUID, "", []Scope{{Audience: capability.HarnessWorker}})
	if err != nil {
		return worker.Token{}, err
	}
	return tokens[0], nil
}

// tokens gets one token for each scope, for the sandbox in an instance.
func (m *Manager) tokens(ctx context.Context, env fence.Envelope, instanceUID, owner string, scopes []Scope) ([]worker.Token, error) {
	const op = "lease.tokens"
	minting, cancel := context.WithTimeout(ctx, mintTimeout)
	defer cancel()
	subject := identity.Sandbox(m.cfg.TrustDomain, instanceUID).String()
	tokens, err := m.cfg.Minter.Mint(minting, env, subject, owner, scopes)
	switch {
	case err != nil && minting.Err() != nil && ctx.Err() == nil:
		return nil, fault.Wrap(err, fault.DependencyUnavailable, op) // the service is deaf; the run has time
	case err != nil:
		return nil, fault.From(err, op)
	case !answers(tokens, scopes):
		return nil, fault.Wrap(errTokens, fault.Internal, op)
	}
	return tokens, nil
}

var errTokens = errors.New("capability service answered with other tokens than those that were asked for")

func answers(tokens []worker.Token, scopes []Scope) bool {
	if len(tokens) != len(scopes) {
		return false
	}
	for i, t := range tokens {
		if t.Audience != string(scopes[i].Audience) || t.Token == "" || t.ID == "" {
			return false
		}
	}
	return true
}

// letGo ends a claim that the record does not know: one that was made only after
// its lease had been replaced, concluded and dropped, so that nobody else would
// ever end it. A claim that the record still knows is the concluder's.
func (m *Manager) letGo(ctx context.Context, bindingID, claimName string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	rec, err := m.cfg.Writer.Backend().Load(ctx, bindingID)
	if err == nil && !knows(rec, claimName) {
		err = m.cfg.Provider.Release(ctx, claimName)
	}
	if err != nil {
		m.cfg.Logger.WarnContext(ctx, "a claim may be left that no record knows", "claim", claimName, "error", err.Error())
	}
}

func knows(rec binding.Record, claimName string) bool {
	if rec.Lease != nil && rec.Lease.ClaimName == claimName {
		return true
	}
	for _, e := range rec.Ending {
		if e.Lease != nil && e.Lease.ClaimName == claimName {
			return true
		}
	}
	return false
}
