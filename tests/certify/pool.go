package certify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

// warmWorkers is how many are kept ready where that is what is tried.
const warmWorkers = 2

// claimed is what was seen of the pool.
type claimed struct {
	// Ready are the workers that no binding had before.
	Ready []int
	Seats []seat
	// Released says of each seat that its process ended with its lease, and Reused that
	// a later lease had its instance.
	Released, Reused []bool
}

// pool claims what is kept ready, and gives it back.
func pool(ctx context.Context, w *world, l *ledger) {
	seen, err := w.claims(ctx)
	if err == nil {
		err = judgeClaims(seen)
	}
	l.figure("claims", float64(len(seen.Seats)))
	l.holds("a warm worker is claimed by one binding, ends with its lease and is not met again", err)
}

func (w *world) claims(ctx context.Context) (seen claimed, err error) {
	if seen.Ready, err = w.unbound(ctx); err != nil {
		return seen, err
	}
	var talks []*talk
	var runs []apiclient.Started
	for range warmWorkers {
		c := w.talk(warm)
		run, err := c.begin(ctx, say("here"))
		if err != nil {
			return seen, err
		}
		talks, runs = append(talks, c), append(runs, run)
	}
	for _, run := range runs {
		if _, err := w.finish(ctx, 0, run); err != nil {
			return seen, err
		}
		s, _, err := w.seat(ctx, run.BindingID)
		if err != nil {
			return seen, err
		}
		seen.Seats = append(seen.Seats, s)
	}
	for i, c := range talks {
		if err := w.clear(ctx, c, runs[i].Epoch); err != nil {
			return seen, err
		}
		seen.Released = append(seen.Released, w.ends(ctx, seen.Seats[i].PID) == nil)
		r, err := c.tell(ctx, say("again"))
		if err != nil {
			return seen, err
		}
		s, _, err := w.seat(ctx, r.BindingID)
		if err != nil {
			return seen, err
		}
		seen.Reused = append(seen.Reused, slices.ContainsFunc(seen.Seats, func(o seat) bool { return o.Instance == s.Instance }))
	}
	return seen, nil
}

// unbound waits for the warm workers.
func (w *world) unbound(ctx context.Context) (pids []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = stack.Until(ctx, func() (bool, error) {
		taken := map[int]bool{}
		for after := ""; ; {
			page, next, err := w.operator.Bindings(ctx, after)
			if err != nil {
				return false, err
			}
			for _, b := range page {
				if b.Sandbox != nil {
					taken[b.Sandbox.PID] = true
				}
			}
			if next == "" {
				break
			}
			after = next
		}
		all, err := w.Processes()
		if err != nil {
			return false, err
		}
		pids = nil
		for _, p := range all {
			if p.Program() == "worker" && p.Alive() && !taken[p.PID] {
				pids = append(pids, p.PID)
			}
		}
		return len(pids) >= warmWorkers, nil
	})
	return pids, err
}

// clear begins a new epoch of a conversation.
func (w *world) clear(ctx context.Context, c *talk, epoch uint32) error {
	body, err := json.Marshal(map[string]any{"agent_id": c.agent, "epoch": epoch})
	if err != nil {
		return err
	}
	a, err := w.users[0].Do(ctx, http.MethodPost, "/api/v1/conversations/"+c.conversation+"/clear", "application/json", strings.NewReader(string(body)))
	if err = errors.Join(err, a.Err()); err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	return nil
}

// ends waits for the end of a process.
func (w *world) ends(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return stack.Until(ctx, func() (bool, error) {
		p, err := procs.Read(pid)
		if err != nil {
			return true, nil //nolint:nilerr // there is nothing to be read of it any more
		}
		return !p.Alive(), nil
	})
}

// judgeClaims sees that claims took what was ready, one each, and that nobody gets it
// afterwards.
func judgeClaims(seen claimed) error {
	var errs []error
	if len(seen.Seats) < 2 || len(seen.Ready) < 2 || len(seen.Released) != len(seen.Seats) || len(seen.Reused) != len(seen.Seats) {
		return fmt.Errorf("%d claims of %d warm workers: nothing is shown", len(seen.Seats), len(seen.Ready))
	}
	errs = append(errs, judgeDistinct(seen.Seats))
	for i, s := range seen.Seats {
		if !slices.Contains(seen.Ready, s.PID) {
			errs = append(errs, fmt.Errorf("claim %d was not of a worker that was ready", i))
		}
		if !seen.Released[i] {
			errs = append(errs, fmt.Errorf("the worker of claim %d outlives its lease", i))
		}
		if seen.Reused[i] {
			errs = append(errs, fmt.Errorf("after claim %d a binding has an instance of before", i))
		}
	}
	return errors.Join(errs...)
}
