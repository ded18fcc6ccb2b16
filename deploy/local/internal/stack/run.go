package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/logfile"
	"cofferdam.dev/deploy/local/internal/openfga"
)

// stopBudget is how long an orderly end may take as a whole.
const stopBudget = 4 * time.Second

// keptWorkerLogs is how many logs of workers of earlier stacks are kept.
const keptWorkerLogs = 64

// Stack is everything that runs. It is made by Run and valid in its body.
type Stack struct {
	cfg    Config
	dir    datadir.Dir
	say    *progress
	log    *slog.Logger
	prober prober

	sockets   sockets
	ids       *identities
	listeners map[string][]listener
	registrar listener
	catalogue catalogue

	mu       sync.Mutex
	children map[string]child

	fail    context.CancelCauseFunc // ends the body
	closers []closer
}

// closer undoes one thing. It may take until the given time for an orderly end.
type closer func(until time.Time) error

func (s *Stack) onStop(c closer) { s.closers = append(s.closers, c) }

// Run starts everything, runs body, and ends everything again, in the reverse
// order and within five seconds. The body's context ends with ctx, and if
// something fails that cannot be started again. A start that ctx interrupts gives
// the error of ctx.
func Run(ctx context.Context, cfg Config, body func(context.Context, *Stack) error) (err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s := &Stack{
		cfg: cfg, fail: fail, say: &progress{out: cfg.Progress}, prober: newProber(),
		listeners: map[string][]listener{}, children: map[string]child{},
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err = s.start(ctx); err == nil {
		err = body(ctx, s)
	}
	if f, ok := errors.AsType[failure](context.Cause(ctx)); ok {
		err = errors.Join(f, err)
	}
	return err
}

// failure is why a stack ends that nobody asked to.
type failure struct{ error }

// Unwrap gives what failed.
func (f failure) Unwrap() error { return f.error }

func (s *Stack) stop() error {
	until := time.Now().Add(stopBudget)
	var errs []error
	for len(s.closers) > 0 {
		last := len(s.closers) - 1
		errs = append(errs, s.closers[last](until))
		s.closers = s.closers[:last]
	}
	return errors.Join(errs...)
}

func (s *Stack) start(ctx context.Context) error {
	if err := s.openDir(); err != nil {
		return err
	}
	fgaKey, err := keys(s.dir)
	if err != nil {
		return err
	}
	if err := sample(s.dir.Sample()); err != nil {
		return fmt.Errorf("sample folder: %w", err)
	}
	if s.catalogue, err = writeCatalogue(s.dir, s.cfg); err != nil {
		return err
	}
	if s.sockets, err = openSockets(s.dir); err != nil {
		return err
	}
	s.onStop(func(time.Time) error { return s.sockets.close() })
	if err := s.bindAll(ctx); err != nil {
		return err
	}
	if err := s.startIdentities(ctx); err != nil {
		return err
	}
	if err := s.startPart(ctx, s.openFGAPart()); err != nil {
		return err
	}
	fga, err := openfga.Setup(ctx, openfga.Config{
		URL: s.listeners[openFGA][mainListener].http(), Key: fgaKey, IDs: s.dir.OpenFGAIDs(),
		Grants: openfga.Demo(User, organization, Operator, s.catalogue.agents, s.catalogue.tools),
	})
	if err != nil {
		return err
	}
	for _, p := range s.serviceParts(fga) {
		if err := s.startPart(ctx, p); err != nil {
			return err
		}
	}
	return s.announce(ctx)
}

// openDir takes the data folder and clears what a stack that was killed left in it.
func (s *Stack) openDir() (err error) {
	if s.dir, err = datadir.Create(s.cfg.DataDir); err != nil {
		return err
	}
	lock, err := s.dir.Lock()
	if err != nil {
		return err
	}
	s.onStop(func(time.Time) error { return lock.Release() })
	own, err := logfile.Open(s.dir.Log("up"), 0)
	if err != nil {
		return err
	}
	s.onStop(func(time.Time) error { return own.Close() })
	s.log = slog.New(slog.NewJSONHandler(own, nil)).With("service", "up")
	return s.clear()
}

func (s *Stack) clear() error {
	if err := s.dir.ClearRunning(); err != nil {
		return err
	}
	return removeOldest(s.dir.WorkerLogs(), keptWorkerLogs)
}

// removeOldest removes all but the newest entries of a folder, which need not be
// there.
func removeOldest(dir string, keep int) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	age := func(e fs.DirEntry) time.Time {
		info, err := e.Info()
		if err != nil {
			return time.Time{} // it is gone already
		}
		return info.ModTime()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return age(a).Compare(age(b)) })
	for _, e := range entries[:max(len(entries)-keep, 0)] {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// bindAll opens all listeners. The public ones come first, since a port that is
// taken is the likeliest reason to give up.
func (s *Stack) bindAll(ctx context.Context) error {
	open := func(bind func(context.Context, string) (listener, error), address string) (listener, error) {
		l, err := bind(ctx, address)
		if err == nil {
			s.onStop(func(time.Time) error { return l.file.Close() })
		}
		return l, err
	}
	public, err := open(bind, s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	operator, err := open(bind, s.cfg.OperatorListen)
	if err != nil {
		return fmt.Errorf("--operator-listen: %w", err)
	}
	if s.registrar, err = open(bind, anyPort); err != nil {
		return err
	}
	for _, name := range slices.Concat([]string{openFGA}, s.cfg.identityNames(), s.cfg.replicaNames()[1:]) {
		for range adminListener + 1 {
			l, err := open(bind, anyPort)
			if err != nil {
				return err
			}
			s.listeners[name] = append(s.listeners[name], l)
			if name == openFGA {
				break // it has no other
			}
		}
	}
	for _, name := range serveSandboxes() {
		l, err := open(bindSocket, filepath.Join(s.sockets.services(), name+".sock"))
		if err != nil {
			return err
		}
		s.listeners[name] = append(s.listeners[name], l)
	}
	s.listeners[controlPlane] = append(s.listeners[controlPlane], public, operator)
	for _, name := range s.cfg.replicaNames()[1:] {
		for range 2 { // the same two, at addresses of its own
			l, err := open(bind, anyPort)
			if err != nil {
				return err
			}
			s.listeners[name] = append(s.listeners[name], l)
		}
	}
	return nil
}

// startIdentities serves the Workload API and the registrar in this process.
func (s *Stack) startIdentities(ctx context.Context) (err error) {
	if s.ids, err = s.newIdentities(ctx, s.cfg.identityNames()); err != nil {
		return err
	}
	s.background(ctx, "the Workload API", s.ids.api.Serve)
	s.onStop(func(time.Time) error { return s.ids.close() })
	s.background(ctx, "the registrar", func(ctx context.Context) error { return s.serveRegistrar(ctx, s.ids, s.registrar) })
	return nil
}

// background runs a part of this process until stop. It is needed for longer than
// ctx lasts: what ends after it still asks it.
func (s *Stack) background(ctx context.Context, name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil {
			s.fail(failure{fmt.Errorf("%s failed: %w", name, err)})
		}
	})
	s.onStop(func(time.Time) error { cancel(); running.Wait(); return nil })
}
