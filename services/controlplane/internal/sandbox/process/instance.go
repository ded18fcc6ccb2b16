package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"cofferdam.dev/pkg/identity"
	proc "cofferdam.dev/pkg/process"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

var errEnded = errors.New("the instance of the claim has ended, or is ending")

// instance is one sandbox, with or without a claim.
type instance struct {
	// Instance, err, process, groups, workspace and log are written before started is
	// closed; the claim's name and uid, which are part of Instance, under the
	// provider's mutex and by the claim alone.
	sandbox.Instance
	profile   *Profile
	err       error // why there is no process
	process   *proc.Process
	groups    *groups
	workspace *os.File // nil where it stands on the host
	log       io.Closer
	firstID   uint32

	started chan struct{} // closed when the start is over
	claimed chan struct{} // closed when it becomes somebody's
	release chan struct{} // closed when somebody wants the end
	gone    chan struct{} // closed when nothing is left

	// expired says that its time was over.
	expired atomic.Bool
	// ready and released are guarded by the provider's mutex, as is the closing of
	// claimed and release.
	ready, released bool
}

// newLocked makes an instance of a profile and lets it live. claimName is empty
// for one that is nobody's yet.
func (p *Provider) newLocked(profile *Profile, claimName string) *instance {
	uid := rand.Text()
	in := &instance{
		Instance: sandbox.Instance{
			UID: uid, ID: identity.Sandbox(p.cfg.TrustDomain, uid), ImageDigest: p.digest, Address: "unix://" + p.folder.socket(uid),
		},
		profile: profile, started: make(chan struct{}), claimed: make(chan struct{}),
		release: make(chan struct{}), gone: make(chan struct{}),
	}
	p.all[uid] = in
	if claimName != "" {
		p.takeLocked(in, claimName)
	}
	p.wg.Go(func() { p.live(p.life, in) })
	return in
}

// takeLocked makes an instance a claim's, for ever.
func (p *Provider) takeLocked(in *instance, claimName string) {
	in.ClaimName, in.ClaimUID = claimName, rand.Text()
	p.claims[claimName] = in
	close(in.claimed)
}

// freeLocked reports whether a claim can take the instance.
func (in *instance) freeLocked() bool { return in.ClaimName == "" && in.usableLocked() }

// releaseLocked asks for the end, also of a start that is under way. It can be
// repeated.
func (in *instance) releaseLocked() {
	if !in.released {
		in.released = true
		close(in.release)
	}
}

// usableLocked reports whether the instance is there to be used, or will be.
func (in *instance) usableLocked() bool {
	select {
	case <-in.started:
		return !in.released && in.runs()
	default:
		return !in.released
	}
}

// runs reports whether there is a process that has not ended.
func (in *instance) runs() bool {
	select {
	case <-in.started:
	default:
		return false
	}
	if in.err != nil {
		return false
	}
	select {
	case <-in.process.Done():
		return false
	default:
		return true
	}
}

// live is an instance from its first moment until nothing is left of it. It is
// the only one that starts, stops and cleans up. ctx is the life of the provider.
func (p *Provider) live(ctx context.Context, in *instance) {
	defer close(in.gone)
	defer p.forget(in)
	failed := p.make(ctx, in)
	if failed == nil {
		if err := p.untilEnd(ctx, in); err != nil {
			p.giveUp(in, err)
			return
		}
	}
	left := p.cleanUp(ctx, in)
	if failed != nil {
		in.err = failed
		close(in.started) // only now, so that a failed claim has left nothing
	}
	for wait := 100 * time.Millisecond; left != nil; wait = min(2*wait, cleanUpTimeout) {
		p.cfg.Logger.WarnContext(ctx, "sandbox left something behind; trying again", "instance", in.UID, "error", left.Error())
		select {
		case <-time.After(wait):
		case <-p.closing:
			p.giveUp(in, left)
			return
		}
		left = p.cleanUp(ctx, in)
	}
}

// has reports whether an instance is not gone.
func (p *Provider) has(uid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[uid] != nil
}

func (p *Provider) forget(in *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, in.UID)
	if in.ClaimName != "" {
		delete(p.claims, in.ClaimName)
	}
	if in.ClaimName == "" && !in.released {
		p.failedLocked(in)
	}
	p.ids.give(in.firstID)
	p.wakeLocked()
}

// giveUp keeps for Close what could not be removed.
func (p *Provider) giveUp(in *instance, left error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = append(p.left, fmt.Errorf("sandbox %s: %w", in.UID, left))
}
