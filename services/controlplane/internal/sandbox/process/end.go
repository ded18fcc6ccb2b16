package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// untilEnd waits for the end of the process, or ends it when that is asked for or
// its time is over. An end that nobody asked for is told of. The error is that of
// a process which cannot be ended, at the end of the provider.
func (p *Provider) untilEnd(ctx context.Context, in *instance) error {
	watching, stop := context.WithCancel(ctx)
	p.wg.Go(func() {
		if err := in.groups.worker.EndOnOOM(watching); err != nil {
			p.cfg.Logger.WarnContext(ctx, "memory of a sandbox cannot be watched", "instance", in.UID, "error", err.Error())
		}
	})
	p.waitEnd(in)
	for {
		err := in.process.Stop(p.grace(in)) // returns at once where it has ended
		if err == nil {
			break
		}
		// The kernel does not let go of it. The claim is not released before it does.
		p.cfg.Logger.ErrorContext(ctx, "sandbox cannot be ended", "instance", in.UID, "error", err.Error())
		select {
		case <-p.closing:
			stop()
			return err
		default:
		}
	}
	stop()
	if err := in.log.Close(); err != nil {
		p.cfg.Logger.WarnContext(ctx, "log of a sandbox is not complete", "instance", in.UID, "error", err.Error())
	}
	limit := p.limitOf(in)
	if in.workspace != nil {
		_ = in.workspace.Close() // it was only looked at
	}
	p.tell(ctx, in, limit)
	return nil
}

// grace is how long an instance may take to end by itself. One that is nobody's has
// nothing to bring to an end.
func (p *Provider) grace(in *instance) time.Duration {
	if p.view(in).ClaimName == "" {
		return 0
	}
	return stopGrace
}

// waitEnd returns when the process has ended or has to be.
func (p *Provider) waitEnd(in *instance) {
	var over <-chan time.Time
	claimed := in.claimed
	idle := time.NewTimer(p.idleTime())
	defer idle.Stop()
	for {
		select {
		case <-in.process.Done():
			return
		case <-in.release:
			return
		case <-over:
			in.expired.Store(true)
			return
		case <-idle.C:
			p.retire(in)
		case <-claimed: // from now on its time runs
			claimed = nil
			timer := time.NewTimer(in.profile.Limits.lifetime())
			defer timer.Stop()
			over = timer.C
		}
	}
}

// tell says that a claimed instance went away, unless that was asked for.
func (p *Provider) tell(ctx context.Context, in *instance, limit sandbox.Limit) {
	p.mu.Lock()
	name, asked := in.ClaimName, in.released
	p.mu.Unlock()
	if asked {
		return
	}
	p.cfg.Logger.InfoContext(ctx, "sandbox went away", "instance", in.UID, "limit", string(limit), "claimed", name != "")
	if name == "" {
		return
	}
	select {
	case p.exits <- sandbox.Exit{ClaimName: name, UID: in.UID, Limit: limit}:
	default:
	}
}

// cleanUp removes groups, files and identity; it can be repeated.
func (p *Provider) cleanUp(ctx context.Context, in *instance) error {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	errs := []error{in.groups.remove(ctx)}
	if err := p.folder.remove(in.UID); err != nil {
		errs = append(errs, fmt.Errorf("files: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return err // it may run still, and keeps its name
	}
	if err := p.cfg.Identities.Deregister(ctx, in.UID); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	return nil
}
