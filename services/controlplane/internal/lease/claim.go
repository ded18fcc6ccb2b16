package lease

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
)

const protocolOne = 1

// noncePattern is what a boot nonce may be: it is stored, and repeated in every
// frame.
var noncePattern = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// hold claims, waits for ready, mints, and binds, each where it is not done yet.
func (m *Manager) hold(ctx context.Context, rec binding.Record, req Request) (Held, error) {
	listing, stop := m.listTools(ctx, req.Agent)
	defer stop()
	instance, client, ready, err := m.claim(ctx, rec, req)
	if err != nil {
		return Held{}, err
	}
	held, err := m.bind(ctx, rec, req, instance, client, ready, listing)
	if err != nil {
		client.Close()
		return Held{}, err
	}
	return held, nil
}

func (m *Manager) claim(ctx context.Context, rec binding.Record, req Request) (sandbox.Instance, worker.Client, worker.Ready, error) {
	instance, err := m.instance(ctx, rec.Lease, req.Agent.Harness)
	if err == nil {
		err = m.same(rec, instance)
	}
	if err != nil {
		return instance, nil, worker.Ready{}, notReady(ctx, err, "lease.claim")
	}
	client, err := m.cfg.Workers.Dial(instance)
	if err != nil {
		return instance, nil, worker.Ready{}, fault.Wrap(err, fault.SandboxNotReady, "lease.claim")
	}
	ctx, end := m.step(ctx, "sandbox.ready", rec.Lease.ClaimName)
	defer end()
	patience := readyTimeout
	if rec.Lease.State == binding.LeaseBound {
		patience = boundReadyTimeout
	}
	ready, err := m.waitReady(ctx, instance, client, patience)
	if err == nil {
		err = matches(rec, req, instance, ready)
	}
	if err != nil {
		client.Close()
		return instance, nil, ready, err
	}
	return instance, client, ready, nil
}

func (m *Manager) instance(ctx context.Context, l *binding.Lease, harness string) (sandbox.Instance, error) {
	ctx, end := m.step(ctx, "sandbox.claim", l.ClaimName)
	defer end()
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	return m.cfg.Provider.Claim(ctx, sandbox.Claim{Name: l.ClaimName, Profile: l.Profile, Harness: harness})
}

var errOtherID = errors.New("the provider names an identity that is not the instance's")

// same compares what the provider gave with the lease as committed.
func (m *Manager) same(rec binding.Record, in sandbox.Instance) error {
	switch {
	case in.ID.IsZero(), in.ID != identity.Sandbox(m.cfg.TrustDomain, in.UID):
		return fault.Wrap(errOtherID, fault.Internal, "lease.claim")
	case rec.Lease.InstanceUID != "" && (rec.Lease.InstanceUID != in.UID || rec.Lease.ClaimUID != in.ClaimUID || rec.Lease.SandboxUID != in.SandboxUID):
		return fault.New(fault.SandboxEvicted, "lease.claim") // the same claim, another instance
	}
	return nil
}

// waitReady asks until the worker says ready, or nobody is there to say it.
func (m *Manager) waitReady(ctx context.Context, in sandbox.Instance, client worker.Client, patience time.Duration) (worker.Ready, error) {
	const op = "lease.ready"
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for asked := 1; ; asked++ {
		ready, err := client.Ready(waiting)
		if err == nil && ready.Ready {
			return ready, nil
		}
		if asked%aliveEvery == 0 {
			if alive, aerr := m.cfg.Provider.Alive(waiting, in.ClaimName, in.UID); aerr == nil && !alive {
				return ready, fault.Wrap(err, fault.SandboxNotReady, op)
			}
		}
		select {
		case <-waiting.Done():
			return ready, notReady(ctx, fault.Wrap(errors.Join(err, waiting.Err()), fault.SandboxNotReady, op), op)
		case <-tick.C:
		}
	}
}

// matches compares the worker with what the agent asks for and with the lease
// as committed.
func matches(rec binding.Record, req Request, in sandbox.Instance, r worker.Ready) error {
	const op = "lease.ready"
	l := rec.Lease
	switch {
	case !slices.Contains(r.ProtocolVersions, protocolOne):
		return fault.New(fault.ProtocolUnsupported, op)
	case r.HarnessID != req.Agent.Harness, r.AdapterVersion != req.Agent.AdapterVersion, r.ImageDigest != in.ImageDigest,
		l.ImageDigest != "" && l.ImageDigest != in.ImageDigest:
		return fault.New(fault.WorkerMismatch, op)
	case !noncePattern.MatchString(r.BootNonce):
		return fault.New(fault.Protocol, op)
	case l.BootNonce != "" && r.BootNonce != l.BootNonce:
		return fault.New(fault.SandboxEvicted, op) // the same address, another worker
	case r.Bound && l.State == binding.LeaseClaiming:
		return fault.New(fault.BindingConflict, op) // somebody else's
	case !r.Bound && l.State == binding.LeaseBound:
		return fault.New(fault.SandboxEvicted, op) // it has forgotten whose it is
	}
	return nil
}

// notReady is the failure of one attempt: the end of the run's own time stays
// what it is, that of the attempt is the sandbox's fault, as is a connection that
// broke.
func notReady(ctx context.Context, err error, op string) error {
	if ctx.Err() != nil {
		return fault.From(ctx.Err(), op)
	}
	switch fault.CodeOf(err) {
	case fault.DependencyUnavailable, fault.DeadlineExceeded, fault.Cancelled:
		return fault.Wrap(err, fault.SandboxNotReady, op)
	default:
		return fault.From(err, op)
	}
}
