package chaosreplicas

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

const (
	// restTimeout bounds how long the replicas may take to come to rest: connections
	// between services are kept for a minute after their last use.
	restTimeout = 2 * time.Minute
	// lastWords is how long a driver may still wait for why a sandbox ended, after its
	// run was concluded by somebody else: --cancel-grace, and what it does then.
	lastWords = 8 * time.Second
	// logPage is how many events are read at once.
	logPage = 500
	// spare is how many descriptors a replica may have more than a new one: what it
	// keeps open to other services.
	spare = 12
)

// judge looks at every run once everything has come to rest.
func (c *chaos) judge(ctx context.Context) (*Report, error) {
	r := &Report{
		Seconds: int(c.Duration.Seconds()), Runs: len(c.runs), Kills: int(c.kills.Load()), Restarts: int(c.restarts.Load()),
		Streams: int(c.streams.Load()), Disconnects: int(c.disconnects.Load()), Replacements: c.watch.replacements(),
	}
	for _, v := range c.runs {
		if err := c.judgeRun(ctx, r, v); err != nil {
			return nil, err
		}
	}
	return r, c.judgeRest(ctx, r)
}

func (c *chaos) judgeRun(ctx context.Context, r *Report, v *run) error {
	var events []apiclient.Event
	err := stack.Until(ctx, func() (bool, error) {
		var ended bool
		var err error
		events, ended, err = c.any().Log(ctx, v.id, logPage)
		return err == nil && ended, err
	})
	if err != nil {
		return fmt.Errorf("run %s: %w", v.id, err)
	}
	terminals := 0
	for i, e := range events {
		if e.Terminal() {
			terminals++
		}
		if e.Sequence != uint64(i) {
			r.say("run %s: event %d stands at %d", v.id, e.Sequence, i)
		}
	}
	if terminals != 1 || !events[len(events)-1].Terminal() {
		r.RunsWithoutOneTerminal++
		r.say("run %s (%q): %d terminals", v.id, v.what, terminals)
		return nil
	}
	switch last := events[len(events)-1]; {
	case last.Type == "run.finished":
		r.Finished++
	case last.Type == "run.cancelled":
		r.Cancelled++
	case strings.Contains(string(last.Data), `"control_plane_lost"`):
		r.Lost++
	}
	for _, stream := range v.seen {
		if !begins(stream, events) {
			r.PrefixViolations++
			r.say("run %s: a stream of %d events is no beginning of the log of %d", v.id, len(stream), len(events))
		}
	}
	c.watch.mu.Lock()
	from, known := c.watch.retired[v.id]
	c.watch.mu.Unlock()
	if !known {
		return nil // it was gone before anybody looked
	}
	for _, e := range events[min(int(from), len(events)):] { //nolint:gosec // a log has fewer events than that
		if !closes(e) {
			r.StaleAccepted++
			r.say("run %s: %s stands at %d, and the run was out of service at %d", v.id, e.Type, e.Sequence, from)
			break
		}
	}
	return nil
}

func begins(stream []string, events []apiclient.Event) bool {
	if len(stream) > len(events) {
		return false
	}
	for i, s := range stream {
		if s != kept(events[i]) {
			return false
		}
	}
	return true
}

// closes says that an event is one of those that close a run which was taken out of
// service.
func closes(e apiclient.Event) bool {
	switch e.Type {
	case "run.started": // of a run that had said nothing
		return e.Sequence == 0
	case "text.finished", "reasoning.finished", "tool.error", "namespace.exited":
		return true
	default:
		return e.Terminal()
	}
}

// judgeRest looks at what the replicas still have once nothing is asked of them: at
// their descriptors, and then at their goroutines, which they write down as they end.
func (c *chaos) judgeRest(ctx context.Context, r *Report) error {
	for _, api := range c.replicas {
		api.Close()
	}
	resting, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	for i := range count {
		n := 0
		err := stack.Until(resting, func() (_ bool, err error) {
			n, err = c.descriptors(i)
			return err == nil && n <= c.fresh+spare, err
		})
		if err != nil {
			r.DescriptorsLeft += max(n-c.fresh, 1)
			r.say("replica %d has %d descriptors, and %d when it was new: %v", i, n, c.fresh, err)
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lastWords):
	}
	for i := range count {
		if err := c.goroutines(ctx, r, i); err != nil {
			return err
		}
	}
	return nil
}

func (c *chaos) descriptors(replica int) (int, error) {
	p, err := c.stack.Replica(replica)
	if err != nil {
		return 0, err
	}
	files, err := procs.Files(p.PID)
	return len(files), err
}

// goroutines lets a replica write down what it does, and looks for what is of a run,
// a stream or a request. There is the reconciler, and nothing else.
func (c *chaos) goroutines(ctx context.Context, r *Report, replica int) error {
	p, err := c.stack.Replica(replica)
	if err != nil {
		return err
	}
	name := "controlplane"
	if replica > 0 {
		name = fmt.Sprintf("%s-%d", name, replica+1)
	}
	log := filepath.Join(c.stack.Data, "logs", name+".log")
	if err := syscall.Kill(p.PID, syscall.SIGQUIT); err != nil {
		return err
	}
	var dump string
	ending, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	err = stack.Until(ending, func() (bool, error) {
		raw, err := os.ReadFile(log)
		at := strings.LastIndex(string(raw), "SIGQUIT: quit")
		if err != nil || at < 0 || p.Alive() {
			return false, err
		}
		dump = string(raw)[at:]
		return strings.Contains(dump, "runs.(*Service).reconcile"), nil
	})
	if err != nil {
		return fmt.Errorf("replica %d does not write down its goroutines: %w", replica, err)
	}
	for g := range strings.SplitSeq(dump, "\n\n") {
		for _, of := range []string{"runs.(*driver)", "runs.(*Service).Follow", "runs.(*Service).watchLag", "/internal/api.", "workerclient."} {
			if strings.HasPrefix(g, "goroutine ") && strings.Contains(g, of) {
				r.GoroutinesLeft++
				r.say("replica %d still has:\n%s", replica, g)
				break
			}
		}
	}
	return nil
}
