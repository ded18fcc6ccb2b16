package scale

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

const (
	// spare is how many sandboxes more than bindings there may be.
	spare = 16
	// atOnce is how many turns are under way at once.
	atOnce = 32
	// fillTimeout and turnTimeout bound the wait for all sandboxes, and for one turn.
	fillTimeout = 10 * time.Minute
	turnTimeout = 5 * time.Minute
	// canaryPrefix begins every canary; canaryLength is that of all of them.
	canaryPrefix = "scale-canary-"
	canaryLength = len(canaryPrefix) + 26
)

// Config of a run.
type Config struct {
	// Command is the path of cofferdam, and Folder where its data go.
	Command, Folder string
	Bindings        int
	// Claims is how many claims are timed, warm and cold each; 0 times none.
	Claims int
	// Progress takes lines for people.
	Progress io.Writer
	// Target is whose conversations they are; none is the agent of a stack with the demo
	// model.
	Target Target
}

// Target is an agent, and how it is talked to.
type Target struct {
	// Agent and the Flags of a stack that has it, with as many warm sandboxes as there
	// are bindings.
	Agent string
	Flags []string
	// Message has it keep a canary, call fs.list_directory once and say the canary.
	Message func(canary string) string
}

// target fills in what is left out.
func (c Config) target() Target {
	if c.Target.Agent != "" {
		return c.Target
	}
	return Target{stack.Agent, []string{"--warm", strconv.Itoa(c.Bindings)}, func(canary string) string {
		return "Remember " + canary + "\n>>call fs.list_directory {\"path\":\".\"}\n>>say I keep " + canary
	}}
}

// conversation is one binding and what belongs to it.
type conversation struct {
	name, canary     string
	runID, bindingID string
	pid              int
}

// Run runs it all. The report is whole where the error is nil.
func Run(ctx context.Context, cfg Config) (r Report, err error) {
	r.Bindings = cfg.Bindings
	if cfg.Claims > 0 {
		if err := cfg.claims(ctx, &r); err != nil {
			return r, err
		}
	}
	cfg.Target = cfg.target()
	s, err := stack.Up(ctx, cfg.Command, filepath.Join(cfg.Folder, "many"),
		append(slices.Clone(cfg.Target.Flags), "--max-sandboxes", strconv.Itoa(cfg.Bindings+spare), "--log-level", "warn")...)
	if err != nil {
		return r, err
	}
	defer func() {
		cfg.say("ending %d sandboxes ...", cfg.Bindings)
		err = errors.Join(err, s.Terminate(context.WithoutCancel(ctx)))
	}()
	if err := cfg.fill(ctx, s, &r); err != nil {
		return r, err
	}
	all, err := cfg.turns(ctx, s, &r)
	if err != nil {
		return r, err
	}
	if err := cfg.locate(ctx, s, all, &r); err != nil {
		return r, err
	}
	cfg.say("looking for canaries ...")
	return r, look(ctx, s, all, newFinder(all, &r, cfg.Progress))
}

func (c Config) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.Progress, format+"\n", args...)
}

// fill waits until every sandbox is alive, and weighs them.
func (c Config) fill(ctx context.Context, s *stack.Stack, r *Report) error {
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	begun, said := time.Now(), 0
	var workers []procs.Process
	err := stack.Until(ctx, func() (bool, error) {
		var err error
		if workers, err = workersOf(s); err != nil {
			return false, err
		}
		if len(workers) >= said+100 {
			said = len(workers)
			c.say("%d of %d sandboxes are alive after %v", said, c.Bindings, time.Since(begun).Round(time.Second))
		}
		return len(workers) >= c.Bindings, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d sandboxes: %w", len(workers), c.Bindings, err)
	}
	r.PeakLive, r.FillSeconds = len(workers), time.Since(begun).Seconds()
	c.say("%d sandboxes are alive after %.0f s", r.PeakLive, r.FillSeconds)
	var rss, pss int64
	for _, w := range workers {
		m, err := procs.Weigh(w.PID)
		if err != nil {
			return err
		}
		rss, pss = rss+m.RSS, pss+m.PSS
	}
	r.RSSMiB, r.PSSMiB = mib(rss, len(workers)), mib(pss, len(workers))
	return nil
}

func mib(bytes int64, by int) float64 {
	return float64(bytes*10/int64(by)/(1<<20)) / 10
}

// workersOf are the workers of the stack that are alive.
func workersOf(s *stack.Stack) ([]procs.Process, error) {
	all, err := s.Processes()
	if err != nil {
		return nil, err
	}
	var workers []procs.Process
	for _, p := range all {
		if p.Program() == "worker" && p.Alive() {
			workers = append(workers, p)
		}
	}
	return workers, nil
}

// turns lets each conversation do one turn with a tool call and a state commit.
func (c Config) turns(ctx context.Context, s *stack.Stack, r *Report) ([]*conversation, error) {
	user, err := s.Client(ctx, stack.User)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	all := make([]*conversation, c.Bindings)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range all {
		v := &conversation{name: "scale-" + strconv.Itoa(i), canary: canaryPrefix + rand.Text()}
		all[i] = v
		g.Go(func() error {
			if err := v.turn(ctx, user, c.Target); err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	r.Completed, r.TurnsSeconds = len(all), time.Since(begun).Seconds()
	c.say("%d turns in %.1f s", r.Completed, r.TurnsSeconds)
	return all, nil
}

func (v *conversation) turn(ctx context.Context, user *apiclient.Client, of Target) error {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	started, err := user.Start(ctx, apiclient.Start{
		AgentID: of.Agent, ConversationID: v.name, Message: of.Message(v.canary),
	})
	if err != nil {
		return err
	}
	v.runID, v.bindingID = started.RunID, started.BindingID
	var run apiclient.Run
	err = stack.Until(ctx, func() (bool, error) {
		var err error
		run, err = user.Run(ctx, v.runID)
		return run.State == "ended", err
	})
	switch {
	case err != nil:
		return err
	case run.Terminal == nil || run.Terminal.Type != "run.finished" || run.DurableRevision != 1:
		return fmt.Errorf("ended as %s (%s) with revision %d", run.End, run.EndReason, run.DurableRevision)
	}
	return nil
}

// locate finds the sandbox of each conversation.
func (c Config) locate(ctx context.Context, s *stack.Stack, all []*conversation, r *Report) error {
	operator, err := s.OperatorClient(ctx, stack.Operator)
	if err != nil {
		return err
	}
	of := make(map[string]*conversation, len(all))
	for _, v := range all {
		of[v.bindingID] = v
	}
	instances := map[string]bool{}
	for after := ""; ; {
		page, next, err := operator.Bindings(ctx, after)
		if err != nil {
			return err
		}
		for _, b := range page {
			if v := of[b.BindingID]; v != nil && b.Sandbox != nil {
				v.pid = b.Sandbox.PID
				instances[b.Sandbox.InstanceUID] = true
			}
		}
		if next == "" {
			break
		}
		after = next
	}
	r.DistinctInstances = len(instances)
	return nil
}
