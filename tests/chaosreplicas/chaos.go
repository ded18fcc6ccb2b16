package chaosreplicas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

const (
	// talkers is how many conversations go on at once.
	talkers = 6
	// count of replicas.
	count = 3
	// takeOver is how long a replica must be silent before the others act for it.
	takeOver = "3s"
	// maxCalm is how long nothing is killed at most.
	maxCalm = time.Second
	// progressEvery is how often people are told.
	progressEvery = 30 * time.Second
)

// part is one that is killed, by a signal, and how long it then lives at least: a
// service that is always away shows nothing.
type part struct {
	program string
	signal  syscall.Signal
	life    time.Duration
}

var parts = []part{
	{"worker", syscall.SIGKILL, time.Second},
	{"controlplane", syscall.SIGKILL, 4 * time.Second},
	{"controlplane", syscall.SIGTERM, 10 * time.Second},
	{"sandboxhost", syscall.SIGKILL, 40 * time.Second},
}

// Config of a run.
type Config struct {
	// Command is the path of cofferdam, and Folder where its data go.
	Command, Folder string
	Duration        time.Duration
	// Progress takes lines for people.
	Progress io.Writer
}

// chaos is a run.
type chaos struct {
	Config

	stack    *stack.Stack
	replicas []*apiclient.Client
	watch    *watch
	// fresh is how many descriptors a replica has that is new.
	fresh int

	mu   sync.Mutex
	runs []*run

	kills, restarts, streams, disconnects atomic.Int64
}

func (c *chaos) add(r *run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs = append(c.runs, r)
}

// Run runs it all. The report is whole where the error is nil.
func Run(ctx context.Context, cfg Config) (r *Report, err error) {
	c := &chaos{Config: cfg}
	c.stack, err = stack.Up(ctx, cfg.Command, filepath.Join(cfg.Folder, "data"), "--replicas", fmt.Sprint(count), "--take-over-after", takeOver,
		"--warm", "2", "--log-level", "warn")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stack.Stop(context.WithoutCancel(ctx))) }()
	for i := range count {
		api, err := c.stack.ReplicaClient(ctx, i, stack.User)
		if err != nil {
			return nil, err
		}
		c.replicas = append(c.replicas, api)
	}
	if err := c.warmUp(ctx); err != nil {
		return nil, err
	}
	if c.watch, err = newWatch(filepath.Join(c.stack.Data, "state", "records.db")); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.watch.close()) }()
	if err := c.play(ctx); err != nil {
		return nil, err
	}
	return c.judge(ctx)
}

// warmUp has each replica drive a run, and counts what it has open then.
func (c *chaos) warmUp(ctx context.Context) error {
	for i, api := range c.replicas {
		s, err := api.Start(ctx, apiclient.Start{AgentID: stack.Agent, ConversationID: "warm-up", Message: ">>say hello"})
		if err == nil {
			_, err = api.Follow(ctx, s.RunID)
		}
		if err == nil {
			err = stack.Until(ctx, func() (bool, error) {
				r, err := api.Run(ctx, s.RunID)
				return err == nil && r.State == "ended", err
			})
		}
		if err != nil {
			return err
		}
		n, err := c.descriptors(i)
		if err != nil {
			return err
		}
		c.fresh = max(c.fresh, n)
	}
	return nil
}

// play talks while parts are killed, and ends with nothing being killed.
func (c *chaos) play(ctx context.Context) error {
	talking, stop := context.WithTimeout(ctx, c.Duration)
	defer stop()
	var beside sync.WaitGroup
	defer beside.Wait()
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	beside.Go(func() { c.kill(talking) })
	beside.Go(func() { c.watch.run(watching) })
	beside.Go(func() { c.progress(talking) })
	var g errgroup.Group
	for n := range talkers {
		g.Go(func() error {
			err := c.talk(talking, n)
			if err != nil {
				stop()
			}
			return err
		})
	}
	return g.Wait()
}

func (c *chaos) progress(ctx context.Context) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for begun := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.mu.Lock()
			n := len(c.runs)
			c.mu.Unlock()
			_, _ = fmt.Fprintf(c.Progress, "%v: %d runs, %d streams, %d kills, %d restarts\n",
				time.Since(begun).Round(time.Second), n, c.streams.Load(), c.kills.Load(), c.restarts.Load())
		}
	}
}

// kill kills one part after the other until ctx ends. Each is started again by
// whoever watches over it; a worker by the next run.
func (c *chaos) kill(ctx context.Context) {
	last := make([]time.Time, len(parts))
	for i, p := range parts {
		last[i] = time.Now().Add(-p.life / 2)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rand.N(maxCalm)): //nolint:gosec // chance, not secrets
		}
		i := rand.IntN(len(parts)) //nolint:gosec // chance, not secrets
		p := parts[i]
		if time.Since(last[i]) < p.life || !c.stack.KillOne(p.program, p.signal) {
			continue
		}
		last[i] = time.Now()
		if p.signal == syscall.SIGKILL {
			c.kills.Add(1)
		} else {
			c.restarts.Add(1)
		}
	}
}
