package process

import (
	"context"
	"crypto/rand"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// Claim gives the claim's instance and makes it if there is none.
func (p *Provider) Claim(ctx context.Context, c sandbox.Claim) (sandbox.Instance, error) {
	const op = "process.Claim"
	if err := ctx.Err(); err != nil {
		return sandbox.Instance{}, fault.From(err, op)
	}
	in, err := p.reserve(c)
	if err != nil {
		return sandbox.Instance{}, err
	}
	select {
	case <-in.started:
	case <-ctx.Done():
		return sandbox.Instance{}, fault.From(ctx.Err(), op)
	}
	switch {
	case fault.Is(in.err, fault.SandboxCapacity):
		return sandbox.Instance{}, fault.Wrap(in.err, fault.SandboxCapacity, op)
	case in.err != nil:
		return sandbox.Instance{}, fault.Wrap(in.err, fault.SandboxNotReady, op)
	case !p.usable(in):
		return sandbox.Instance{}, fault.Wrap(errEnded, fault.SandboxNotReady, op)
	}
	return in.Instance, nil
}

// reserve gives the one instance of a claim. It is made in a goroutine of the
// provider's own: whoever asked first may go away, and others wait for it too.
func (p *Provider) reserve(c sandbox.Claim) (*instance, error) {
	const op = "process.Claim"
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, fault.New(fault.SandboxNotReady, op)
	case p.instances[c.Name] != nil:
		return p.instances[c.Name], nil
	case len(p.instances) >= p.cfg.MaxInstances:
		return nil, fault.New(fault.SandboxCapacity, op)
	}
	uid := rand.Text()
	in := &instance{
		Instance: sandbox.Instance{
			ClaimName: c.Name, ClaimUID: rand.Text(), UID: uid, ID: identity.Sandbox(p.cfg.TrustDomain, uid), ImageDigest: p.digest,
		},
		release: make(chan struct{}), started: make(chan struct{}), gone: make(chan struct{}),
	}
	p.instances[c.Name] = in
	p.wg.Go(func() { p.live(p.life, in, c.Harness) })
	return in, nil
}

// Release ends the claim's instance: SIGTERM, then SIGKILL to its group.
func (p *Provider) Release(ctx context.Context, claimName string) error {
	p.mu.Lock()
	in := p.instances[claimName]
	if in != nil {
		in.releaseLocked()
	}
	p.mu.Unlock()
	if in == nil {
		return nil
	}
	select {
	case <-in.gone:
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err(), "process.Release")
	}
}

// Alive reports whether the claim's process is this instance and runs.
func (p *Provider) Alive(_ context.Context, claimName, uid string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.instances[claimName]
	return in != nil && in.UID == uid && in.usableLocked(), nil
}

// List gives the instances that run.
func (p *Provider) List(context.Context) ([]sandbox.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]sandbox.Instance, 0, len(p.instances))
	for _, in := range p.instances {
		if in.runs() {
			out = append(out, in.Instance)
		}
	}
	return out, nil
}

func (p *Provider) usable(in *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return in.usableLocked()
}
