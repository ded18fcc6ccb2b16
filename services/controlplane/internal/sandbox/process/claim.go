package process

import (
	"context"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// roomAgain is how long to wait for room for a sandbox. Nobody knows when another one
// is given back; it keeps those who ask from asking all the time.
const roomAgain = 5 * time.Second

// Claim gives the claim's instance: a warm one, or one that is made for it.
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
		return sandbox.Instance{}, fault.Wrap(in.err, fault.SandboxCapacity, op, fault.RetryAfter(roomAgain))
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
	profile, err := p.profileOf(c)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, fault.New(fault.SandboxNotReady, op)
	case p.claims[c.Name] != nil:
		return p.claims[c.Name], nil
	}
	if in := p.bestLocked(profile); in != nil {
		p.takeLocked(in, c.Name)
		p.usedLocked(in)
		return in, nil
	}
	if !p.roomLocked(profile.Harness) && !p.makeRoomLocked(profile.Harness) || len(p.all) >= p.cfg.MaxInstances && !p.makeRoomLocked("") {
		return nil, fault.New(fault.SandboxCapacity, op, fault.RetryAfter(roomAgain))
	}
	return p.newLocked(profile, c.Name), nil
}

// Room implements sandbox.Provider: it says what reserve would.
func (p *Provider) Room(_ context.Context, c sandbox.Claim) error {
	const op = "process.Room"
	profile, err := p.profileOf(c)
	if err != nil {
		if fault.Is(err, fault.SandboxCapacity) {
			return err
		}
		return nil // the claim will say what is wrong with it
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.claims[c.Name] != nil || p.bestLocked(profile) != nil {
		return nil
	}
	if !p.roomLocked(profile.Harness) && p.warmLocked(profile.Harness) == nil || len(p.all) >= p.cfg.MaxInstances && p.warmLocked("") == nil {
		return fault.New(fault.SandboxCapacity, op, fault.RetryAfter(roomAgain))
	}
	return nil
}

// bestLocked gives the instance of a profile that is nobody's and will be ready
// first, or nil.
func (p *Provider) bestLocked(profile *Profile) *instance {
	var best *instance
	for _, in := range p.all {
		switch {
		case in.profile != profile || !in.freeLocked():
		case in.ready:
			return in
		case best == nil || in.runs() && !best.runs():
			best = in
		}
	}
	return best
}

// roomLocked reports whether one more instance of a harness may live beside those
// that there are, whatever others do.
func (p *Provider) roomLocked(harness string) bool {
	most, bounded := p.cfg.MaxPerHarness[harness]
	if !bounded {
		return true
	}
	for _, in := range p.all {
		if in.profile.Harness == harness {
			most--
		}
	}
	return most > 0
}

// makeRoomLocked ends a warm instance of a harness, or of any for "": who claims goes
// before who might.
func (p *Provider) makeRoomLocked(harness string) bool {
	in := p.warmLocked(harness)
	if in == nil {
		return false
	}
	in.releaseLocked()
	return true
}

// warmLocked gives an instance that is nobody's, of a harness or of any for "".
func (p *Provider) warmLocked(harness string) *instance {
	for _, in := range p.all {
		if in.freeLocked() && (harness == "" || in.profile.Harness == harness) {
			return in
		}
	}
	return nil
}

// Release ends the claim's instance: SIGTERM, then SIGKILL to all of it.
func (p *Provider) Release(ctx context.Context, claimName string) error {
	p.mu.Lock()
	in := p.claims[claimName]
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
	in := p.claims[claimName]
	return in != nil && in.UID == uid && in.usableLocked(), nil
}

// List gives the claimed instances that run.
func (p *Provider) List(context.Context) ([]sandbox.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]sandbox.Instance, 0, len(p.claims))
	for _, in := range p.claims {
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
