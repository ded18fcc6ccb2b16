package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"cofferdam.dev/pkg/isolation"
)

// make starts an instance in its turn and, if it is nobody's yet, waits until it
// is ready. It closes started where there is a process.
func (p *Provider) make(ctx context.Context, in *instance) error {
	select {
	case p.making <- struct{}{}:
	case <-in.release:
		return errEnded
	}
	err := p.start(ctx, in)
	if err == nil {
		close(in.started)
		p.awaitReady(ctx, in)
	}
	<-p.making
	return err
}

// start makes identity, socket, groups, log and sandbox. What it made before it
// failed is left to cleanUp.
func (p *Provider) start(ctx context.Context, in *instance) (err error) {
	making, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	p.wg.Go(func() { // a release ends a start that is under way
		select {
		case <-in.release:
			cancel()
		case <-stop:
		}
	})
	if err := p.checkConfig(in.profile); err != nil { // it may have been changed
		return err
	}
	if in.firstID, err = p.ids.take(); err != nil {
		return err
	}
	workloadAPI, err := p.cfg.Identities.Register(making, in.UID, p.peer(in))
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	listener, err := p.folder.listen(making, in.UID)
	if err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	defer func() { _ = listener.Close() }() // the worker has its own
	if in.groups, err = p.makeGroups(in.UID, in.profile); err != nil {
		return err
	}
	if err := pruneLogs(p.cfg.LogDir, keptLogs, p.has); err != nil {
		p.cfg.Logger.WarnContext(making, "old logs of sandboxes cannot be removed", "error", err.Error())
	}
	log, err := openLog(p.cfg.LogDir, in.UID)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	if err := p.launch(ctx, making, in, strings.TrimPrefix(workloadAPI, "unix://"), listener, log); err != nil {
		return errors.Join(err, log.Close())
	}
	in.log = log
	return nil
}

// launch starts the worker in its sandbox. It lives for as long as the provider,
// not for as long as its start.
func (p *Provider) launch(life, making context.Context, in *instance, workload string, listener *os.File, log io.Writer) error {
	at := inside()
	if p.rootless() {
		folder, err := p.folder.workspace(in.UID, int(p.peer(in)))
		if err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
		at = paths{worker: p.cfg.WorkerPath, workspace: folder, workload: workload, config: in.profile.HarnessConfig}
	}
	running, err := p.launcher.Start(life, isolation.Launch{
		Spec: p.spec(in.profile, at, workload, in.groups.counters()), FirstID: in.firstID, Stderr: log, ExtraFiles: []*os.File{listener},
		Place:   func(w isolation.World, pid int) error { return errors.Join(making.Err(), in.groups.place(w, pid)) },
		Timeout: startTimeout,
	})
	if err != nil {
		return err
	}
	in.PID, in.process = running.PID(), running
	if p.rootless() {
		return nil
	}
	if in.workspace, err = openWorkspace(in.PID); err != nil { // one that has ended at once has none
		p.cfg.Logger.WarnContext(making, "workspace of a sandbox cannot be watched", "instance", in.UID, "error", err.Error())
	}
	return nil
}

// peer is the user on the host that a worker is.
func (p *Provider) peer(in *instance) uint32 {
	if in.firstID == 0 {
		return uint32(os.Geteuid()) //nolint:gosec // a user id is 32 bits wide
	}
	return in.firstID + isolation.WorkerID
}
