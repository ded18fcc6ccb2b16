package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	proc "cofferdam.dev/pkg/process"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

var errEnded = errors.New("the instance of the claim has ended, or is ending")

// instance is one claim's process.
type instance struct {
	// Instance, err, process and log are written before started is closed.
	sandbox.Instance
	err     error // why there is no process
	process *proc.Process
	log     io.Closer

	started chan struct{} // closed when the start is over
	release chan struct{} // closed when somebody wants the end
	gone    chan struct{} // closed when nothing is left

	released bool // guarded by the provider's mutex, as is the closing of release
}

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
func (p *Provider) live(ctx context.Context, in *instance, harness string) {
	defer close(in.gone)
	defer p.forget(in)
	in.err = p.start(ctx, in, harness)
	if in.err == nil {
		close(in.started)
		if err := p.untilEnd(ctx, in); err != nil {
			p.giveUp(in, err)
			return
		}
	}
	left := p.cleanUp(ctx, in)
	if in.err != nil {
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

// start makes identity, workspace, log, listener and process. What it made
// before it failed is left to cleanUp.
func (p *Provider) start(ctx context.Context, in *instance, harness string) error {
	making, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p.wg.Go(func() { // a release ends a start that is under way
		select {
		case <-in.release:
			cancel()
		case <-making.Done():
		}
	})
	workloadAPI, err := p.cfg.Identities.Register(making, in.UID)
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	workspace, err := p.workspaces.make(in.UID)
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	listener, address, err := loopback(making)
	if err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	defer func() { _ = listener.Close() }() // the child has its own
	if err := pruneLogs(p.cfg.LogDir, keptLogs, p.has); err != nil {
		p.cfg.Logger.WarnContext(making, "old logs of sandboxes cannot be removed", "error", err.Error())
	}
	log, err := openLog(p.cfg.LogDir, in.UID)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	args := append([]string{
		"--listen", "fd://3", "--workload-api", workloadAPI, "--trust-domain", p.cfg.TrustDomain.Name(),
		"--harness", harness, "--workspace", workspace,
	}, p.cfg.WorkerArgs...)
	// The process lives for as long as the provider, not for as long as its start.
	process, err := proc.Start(ctx, proc.Spec{
		Path: p.cfg.WorkerPath, Args: args, Dir: workspace, Stderr: log, ExtraFiles: []*os.File{listener},
	})
	if err != nil {
		return errors.Join(err, log.Close())
	}
	in.Address, in.PID, in.process, in.log = address, process.PID(), process, log
	return nil
}

// untilEnd waits for the end of the process, or ends it when that is asked for.
// An end that nobody asked for is told of. The error is that of a process which
// cannot be ended, at the end of the provider.
func (p *Provider) untilEnd(ctx context.Context, in *instance) error {
	select {
	case <-in.process.Done():
	case <-in.release:
	}
	for {
		err := in.process.Stop(stopGrace) // returns at once where it has ended
		if err == nil {
			break
		}
		// The kernel does not let go of it. The claim is not released before it does.
		p.cfg.Logger.ErrorContext(ctx, "sandbox cannot be ended", "instance", in.UID, "error", err.Error())
		select {
		case <-p.closing:
			return err
		default:
		}
	}
	if err := in.log.Close(); err != nil {
		p.cfg.Logger.WarnContext(ctx, "log of a sandbox is not complete", "instance", in.UID, "error", err.Error())
	}
	if p.asked(in) {
		return nil
	}
	select {
	case p.exits <- sandbox.Exit{ClaimName: in.ClaimName, UID: in.UID}:
	default:
	}
	return nil
}

// cleanUp removes workspace and identity; it can be repeated.
func (p *Provider) cleanUp(ctx context.Context, in *instance) error {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	workspace := p.workspaces.remove(in.UID)
	if workspace != nil {
		workspace = fmt.Errorf("workspace: %w", workspace)
	}
	identity := p.cfg.Identities.Deregister(ctx, in.UID)
	if identity != nil {
		identity = fmt.Errorf("identity: %w", identity)
	}
	return errors.Join(workspace, identity)
}

// has reports whether an instance is not gone.
func (p *Provider) has(uid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range p.instances {
		if in.UID == uid {
			return true
		}
	}
	return false
}

// asked reports whether the instance's end was asked for.
func (p *Provider) asked(in *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return in.released
}

func (p *Provider) forget(in *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.instances, in.ClaimName)
}

// giveUp keeps for Close what could not be removed.
func (p *Provider) giveUp(in *instance, left error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = append(p.left, fmt.Errorf("sandbox %s: %w", in.UID, left))
}
