// Package runstest runs the control plane's domain on a real store, with
// workers that play scripts: a fake is the real thing but for the sandbox.
package runstest

import (
	"context"
	"fmt"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// Digest of the image that every instance claims to run.
const Digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// Provider makes instances that are only bookkeeping.
type Provider struct {
	td    spiffeid.TrustDomain
	exits chan sandbox.Exit

	mu        sync.Mutex
	instances map[string]sandbox.Instance
	made      int
	refuse    error
	full      error
	closed    bool
	onGone    func(uid string)
	lists     int
}

// NewProvider makes a Provider.
func NewProvider(td spiffeid.TrustDomain) *Provider {
	return &Provider{td: td, exits: make(chan sandbox.Exit, 64), instances: map[string]sandbox.Instance{}, onGone: func(string) {}}
}

// Refuse makes every further claim fail; nil ends that.
func (p *Provider) Refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = err
}

// Full makes every further claim fail, which is known before; nil ends that.
func (p *Provider) Full(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse, p.full = err, err
}

// Room implements sandbox.Provider.
func (p *Provider) Room(_ context.Context, c sandbox.Claim) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.instances[c.Name]; there {
		return nil
	}
	return p.full
}

// Made is how many instances there ever were.
func (p *Provider) Made() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made
}

// Claim implements sandbox.Provider.
func (p *Provider) Claim(_ context.Context, c sandbox.Claim) (sandbox.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if in, ok := p.instances[c.Name]; ok {
		return in, nil
	}
	if p.refuse != nil {
		return sandbox.Instance{}, fault.From(p.refuse, "runstest.Claim")
	}
	p.made++
	uid := fmt.Sprintf("instance-%d", p.made)
	in := sandbox.Instance{
		ClaimName: c.Name, ClaimUID: "claim-" + uid, UID: uid, Address: "https://worker.invalid",
		ID: identity.Sandbox(p.td, uid), ImageDigest: Digest, PID: p.made,
	}
	p.instances[c.Name] = in
	return in, nil
}

// Release implements sandbox.Provider.
func (p *Provider) Release(_ context.Context, claimName string) error {
	p.end(claimName)
	return nil
}

// Kill ends an instance as SIGKILL would, and tells of it.
func (p *Provider) Kill(claimName string) { p.Exceed(claimName, "") }

// Exceed ends an instance because of a limit, and tells of it.
func (p *Provider) Exceed(claimName string, limit sandbox.Limit) {
	if in, ok := p.end(claimName); ok {
		p.exits <- sandbox.Exit{ClaimName: claimName, UID: in.UID, Limit: limit}
	}
}

// Vanish ends an instance, and nobody is told.
func (p *Provider) Vanish(claimName string) { p.end(claimName) }

// Lists is how often all instances were asked for.
func (p *Provider) Lists() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists
}

func (p *Provider) end(claimName string) (sandbox.Instance, bool) {
	p.mu.Lock()
	in, ok := p.instances[claimName]
	delete(p.instances, claimName)
	gone := p.onGone
	p.mu.Unlock()
	if ok {
		gone(in.UID)
	}
	return in, ok
}

// Alive implements sandbox.Provider.
func (p *Provider) Alive(_ context.Context, claimName, uid string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in, ok := p.instances[claimName]
	return ok && in.UID == uid, nil
}

// Exits implements sandbox.Provider.
func (p *Provider) Exits() <-chan sandbox.Exit { return p.exits }

// List implements sandbox.Provider.
func (p *Provider) List(context.Context) ([]sandbox.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lists++
	out := make([]sandbox.Instance, 0, len(p.instances))
	for _, in := range p.instances {
		out = append(out, in)
	}
	return out, nil
}

// Weaknesses implements sandbox.Provider: bookkeeping isolates nothing.
func (p *Provider) Weaknesses() []string { return []string{"everything"} }

// Close implements sandbox.Provider.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		close(p.exits)
	}
	return nil
}
