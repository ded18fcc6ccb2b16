package chaosstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

const (
	// talkers is how many conversations there are, and atOnce how many of them have a
	// turn at a time. One that takes longer than slow, as after the death of its control
	// plane, is not waited for.
	talkers = 10
	atOnce  = 4
	slow    = time.Second
	// largeEvery is how many there are to one with a large state, of largeBytes.
	largeEvery = 3
	largeBytes = 1200 << 10
	// turnTimeout bounds one turn with all that happens to it.
	turnTimeout = 3 * time.Minute
	// patience bounds a run: patience itself, and so much for each kill.
	patience     = 10 * time.Minute
	perKill      = 5 * time.Second
	profile      = "thread"
	eventsOfPage = 500
)

// Config of a run.
type Config struct {
	// Command is the path of cofferdam among programs that have points, and Folder
	// where its data go.
	Command, Folder string
	// Kills is how many processes are killed at least.
	Kills int
	// Progress takes lines for people.
	Progress io.Writer
}

// chaos is a run.
type chaos struct {
	Config

	stack *stack.Stack
	user  *apiclient.Client
	hunt  *hunt

	mu     sync.Mutex
	report Report
	ended  map[string]string // the terminal of each run, as it was first seen
}

// Run runs it all. The report is whole where the error is nil.
func Run(ctx context.Context, cfg Config) (r *Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(cfg.Kills)*perKill)
	defer cancel()
	c := &chaos{Config: cfg, ended: map[string]string{}}
	flags, err := c.files()
	if err != nil {
		return nil, err
	}
	c.stack, err = stack.Up(ctx, cfg.Command, filepath.Join(cfg.Folder, "data"), append(flags, "--take-over-after", "1500ms", "--log-level", "warn")...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stack.Stop(context.WithoutCancel(ctx))) }()
	if c.user, err = c.stack.Client(ctx, stack.User); err != nil {
		return nil, err
	}
	c.hunt = newHunt(c.stack, cfg.Kills, cfg.Progress, c.sieges())
	if err := c.play(ctx); err != nil {
		return nil, err
	}
	if err := c.again(ctx); err != nil {
		return nil, err
	}
	c.report.Kills, c.report.Points = c.hunt.counts()
	return &c.report, nil
}

// files writes what makes the agent one whose turns are scripts.
func (c *chaos) files() (flags []string, err error) {
	for flag, doc := range map[string]any{
		"agents": map[string]any{"agents": []any{map[string]any{
			"agent_id": stack.Agent, "version": 1, "name": profile, "organization": "local", "harness": "scripted", "adapter_version": "1.0.0",
			"model_alias": "demo", "profile": profile,
		}}},
		"sandbox-profiles": map[string]any{"profiles": []any{map[string]any{"name": profile, "harness": "scripted", "warm": 2}}},
	} {
		raw, err := json.Marshal(doc)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(c.Folder, flag+".json")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			return nil, err
		}
		flags = append(flags, "--"+flag, path)
	}
	return flags, nil
}

// play lets conversations go on while parts are killed, and each have one more turn
// when nothing is killed any more.
func (c *chaos) play(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	killed, slots := make(chan struct{}), make(chan struct{}, atOnce)
	g.Go(func() error {
		defer close(killed)
		return c.hunt.run(ctx)
	})
	for t := range talkers {
		g.Go(func() error {
			v, ballast := newThread("thread-"+strconv.Itoa(t)), 0
			if t%largeEvery == 0 {
				ballast = largeBytes
			}
			for n, last := 0, false; !last; n++ {
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
				release := sync.OnceFunc(func() { <-slots })
				waiting := time.AfterFunc(slow, release)
				select {
				case <-killed:
					last = true
				default:
				}
				err := c.turn(ctx, v, "turn-"+strconv.Itoa(n), ballast)
				waiting.Stop()
				release()
				if err != nil {
					return fmt.Errorf("%s, turn %d: %w", v.name, n, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// turn runs one turn to its end, whatever that is. A request that fails is made
// again: its key makes it the same run.
func (c *chaos) turn(ctx context.Context, v *thread, mark string, ballast int) error {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	o := outcome{mark: mark, unheard: c.hunt.besiegedAt(failpoint.HeadMoved)}
	err := stack.Until(ctx, func() (bool, error) {
		s, err := c.user.Start(ctx, apiclient.Start{
			AgentID: stack.Agent, ConversationID: v.name, Message: script(mark, ballast), IdempotencyKey: v.name + "." + mark,
		})
		o.runID = s.RunID
		return err == nil, err
	})
	if err != nil {
		return err
	}
	var run, seen apiclient.Run
	err = stack.Until(ctx, func() (bool, error) {
		var err error
		if run, err = c.user.Run(ctx, o.runID); err == nil {
			seen = run
		}
		return err == nil && run.State == "ended" && run.Terminal != nil, err
	})
	if err != nil {
		_, points := c.hunt.counts()
		return fmt.Errorf("run %s, last seen as %+v, after kills %v: %w", o.runID, seen, points, err)
	}
	var log []apiclient.Event
	err = stack.Until(ctx, func() (done bool, err error) {
		log, done, err = c.user.Log(ctx, o.runID, eventsOfPage)
		return done, err
	})
	if err != nil {
		return fmt.Errorf("log of run %s: %w", o.runID, err)
	}
	o.terminal, o.revision = run.Terminal.Type, run.DurableRevision
	var data struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(run.Terminal.Data, &data); err != nil {
		return err
	}
	o.code = data.Code
	o.loaded, o.known = found(log, delta)
	o.unheard = o.unheard && c.hunt.besiegedAt(failpoint.HeadMoved)
	c.mu.Lock()
	defer c.mu.Unlock()
	v.take(&c.report, o)
	c.ended[o.runID] = string(run.Terminal.Raw)
	if n := c.report.Turns; n%100 == 0 {
		_, _ = fmt.Fprintf(c.Progress, "%d turns, %d saved, %d uncertain\n", n, c.report.Acknowledged, c.report.UncertainReported)
	}
	return nil
}

// sieges: state facades die before they move a head until a turn ends as uncertain,
// and after they have moved it until one is said to be saved all the same.
func (c *chaos) sieges() []siege {
	reported := func(n *int) func() bool {
		return func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return *n > 0
		}
	}
	return []siege{
		{point: failpoint.HeadAsked, over: reported(&c.report.UncertainReported)},
		{point: failpoint.HeadMoved, over: reported(&c.report.SavedUnheard), deaths: deathsOfASiege},
	}
}

// delta is the text of a text.delta.
func delta(e apiclient.Event) string {
	var data struct {
		Delta string `json:"delta"`
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return ""
	}
	return data.Delta
}

// again sees that what was said of a run is still said of it.
func (c *chaos) again(ctx context.Context) error {
	for id, was := range c.ended {
		run, err := c.user.Run(ctx, id)
		if err != nil {
			return err
		}
		if run.Terminal == nil || string(run.Terminal.Raw) != was {
			c.report.Violations++
			c.report.wrong = append(c.report.wrong, fmt.Sprintf("run %s ended as %s, and as %+v later", id, was, run.Terminal))
		}
	}
	return nil
}
