package process

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"time"

	"cofferdam.dev/services/controlplane/internal/sandbox"
)

const (
	// DefaultMaxIdle is how long a warm instance may wait for its claim. Its identity
	// and its worker's own patience last longer.
	DefaultMaxIdle = 10 * time.Minute
	// readyAgain is the pause between two questions whether an instance is ready.
	readyAgain = 10 * time.Millisecond
	// firstBackOff, doubled up to maxBackOff, is the pause after a warm instance that
	// went away before anybody claimed it.
	firstBackOff = 100 * time.Millisecond
	maxBackOff   = 30 * time.Second
)

// startsAtOnce is how many instances are made at once: more of them would only
// wait for the processors.
func startsAtOnce() int { return runtime.GOMAXPROCS(0) + 1 }

// pool keeps the warm instances of one profile.
type pool struct {
	profile *Profile
	// wake holds a word that there may be something to do.
	wake chan struct{}
	// failures in a row, and when the next attempt may be; guarded by the provider's
	// mutex.
	failures int
	again    time.Time
}

// Warm begins to keep instances ready, as many as the profiles say. It is called
// once, when everything answers that an instance asks; Close ends it.
func (p *Provider) Warm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.cfg.Profiles {
		profile := &p.cfg.Profiles[i]
		if profile.Warm == 0 || profile.Disabled || p.closed {
			continue
		}
		w := &pool{profile: profile, wake: make(chan struct{}, 1)}
		p.warm[profile] = w
		p.wg.Go(func() { p.keepWarm(w) })
	}
}

// keepWarm makes what is missing whenever something may be.
func (p *Provider) keepWarm(w *pool) {
	for {
		p.mu.Lock()
		pause := p.fillLocked(w)
		p.mu.Unlock()
		var over <-chan time.Time
		if pause > 0 {
			over = time.After(pause)
		}
		select {
		case <-p.closing:
			return
		case <-w.wake:
		case <-over:
		}
	}
}

// fillLocked makes what is missing and may be made now. What it gives is how long
// to wait before the next attempt, where that is known.
func (p *Provider) fillLocked(w *pool) time.Duration {
	have, starting := 0, 0
	for _, in := range p.all {
		if in.profile != w.profile || !in.freeLocked() {
			continue
		}
		have++
		if !in.ready {
			starting++
		}
	}
	if have >= w.profile.Warm {
		return 0
	}
	if pause := time.Until(w.again); pause > 0 {
		return pause
	}
	for !p.closed && have < w.profile.Warm && starting < startsAtOnce() && len(p.all) < p.cfg.MaxInstances && p.roomLocked(w.profile.Harness) {
		p.newLocked(w.profile, "")
		have++
		starting++
	}
	return 0
}

// wakeLocked says that there may be something to do: room that one pool has left
// is another's as well.
func (p *Provider) wakeLocked() {
	for _, w := range p.warm {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// usedLocked says that a warm instance came to its use, or was good for it.
func (p *Provider) usedLocked(in *instance) {
	if w := p.warm[in.profile]; w != nil {
		w.failures = 0
	}
	p.wakeLocked()
}

// failedLocked says that a warm instance went away before anybody claimed it.
func (p *Provider) failedLocked(in *instance) {
	w := p.warm[in.profile]
	if w == nil {
		return
	}
	w.again = time.Now().Add(min(firstBackOff<<min(w.failures, 20), maxBackOff))
	w.failures++
}

// idleTime is how long an instance waits for its claim. Those that were made
// together do not end together.
func (p *Provider) idleTime() time.Duration {
	half := p.cfg.MaxIdle / 2
	return half + rand.N(half+1) //nolint:gosec // nobody gains by knowing it
}

// retire ends an instance that has waited too long, unless it was claimed.
func (p *Provider) retire(in *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if in.ClaimName == "" {
		in.releaseLocked()
		p.usedLocked(in)
	}
}

// awaitReady asks an instance until it is ready or has ended. One that does not
// become ready is ended, unless it was claimed: who did asks himself.
func (p *Provider) awaitReady(ctx context.Context, in *instance) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := p.askReady(ctx, in)
		if err == nil {
			p.mu.Lock()
			in.ready = true
			p.wakeLocked()
			p.mu.Unlock()
			return
		}
		select {
		case <-time.After(readyAgain):
		case <-in.process.Done():
			return
		case <-in.release:
			return
		case <-ctx.Done():
			p.cfg.Logger.WarnContext(ctx, "sandbox did not become ready", "instance", in.UID, "error", err.Error())
			p.mu.Lock()
			if in.ClaimName == "" {
				in.releaseLocked()
				p.failedLocked(in)
			}
			p.mu.Unlock()
			return
		}
	}
}

var errNotRunning = errors.New("it does not run")

// askReady asks once: whether its process runs, and whether it answers at its
// socket.
func (p *Provider) askReady(ctx context.Context, in *instance) error {
	if !in.runs() {
		return errNotRunning
	}
	if p.cfg.Ready != nil {
		return p.cfg.Ready(ctx, p.view(in))
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", p.folder.socket(in.UID))
	if err != nil {
		return err
	}
	return c.Close()
}

// view is an instance as it is now.
func (p *Provider) view(in *instance) sandbox.Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return in.Instance
}
