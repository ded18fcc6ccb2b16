package chaostools

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

const (
	// talkers is how many conversations go on at once.
	talkers = 8
	// callTimeout bounds one call with all that happens to it.
	callTimeout = 3 * time.Minute
	// toolTimeout is that of the tool, as the broker is told.
	toolTimeout = 5 * time.Second
	// settle is how long a call that is under way when its run has ended may take
	// until its outcome stands.
	settle = 2*toolTimeout + 10*time.Second
	// clearEvery is how many calls there are to one whose conversation is cleared.
	clearEvery = 5
	// maxCalm is how long nothing is killed at most, and maxHaste when a
	// conversation is cleared at the latest.
	maxCalm  = 1500 * time.Millisecond
	maxHaste = 1200 * time.Millisecond
)

// part is one that is killed, and how long it then lives at least: a service that is
// always away shows nothing.
type part struct {
	program string
	life    time.Duration
}

// parts are those that are killed. The control plane takes all sandboxes with it.
var parts = []part{{"worker", time.Second}, {"toolbroker", 15 * time.Second}, {"controlplane", 40 * time.Second}}

// Config of a run.
type Config struct {
	// Command is the path of cofferdam, and Folder where its data go.
	Command, Folder string
	Calls           int
	// Progress takes lines for people.
	Progress io.Writer
}

// chaos is a run.
type chaos struct {
	Config

	stack   *stack.Stack
	user    *apiclient.Client
	counter *counter
	begun   time.Time

	kills, clears, done atomic.Int64
}

// Run runs it all. The report is whole where the error is nil.
func Run(ctx context.Context, cfg Config) (r *Report, err error) {
	c := &chaos{Config: cfg, counter: newCounter(), begun: time.Now()}
	defer c.counter.Close()
	config, err := c.catalogue()
	if err != nil {
		return nil, err
	}
	c.stack, err = stack.Up(ctx, cfg.Command, filepath.Join(cfg.Folder, "data"), "--mcp-config", config, "--warm", "4", "--log-level", "warn")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stack.Stop(context.WithoutCancel(ctx))) }()
	if c.user, err = c.stack.Client(ctx, stack.User); err != nil {
		return nil, err
	}
	calls, err := c.play(ctx)
	if err != nil {
		return nil, err
	}
	return c.judge(ctx, calls)
}

// catalogue writes the configuration of the counter as a further MCP server. What
// is said of its tool is the default: it is neither idempotent nor read-only.
func (c *chaos) catalogue() (string, error) {
	raw, err := json.Marshal(map[string]any{"servers": []any{map[string]any{
		"namespace": "effects", "transport": "http", "url": c.counter.URL, "tools": []string{toolName},
		"timeout": toolTimeout.String(), "egress": map[string]any{"allow_cidrs": []string{"127.0.0.1/32"}},
	}}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.Folder, "mcp.json")
	return path, os.WriteFile(path, raw, 0o600)
}

// play makes all calls while parts are killed, and ends with nothing being killed.
func (c *chaos) play(ctx context.Context) ([]*call, error) {
	calls := make([]*call, c.Calls)
	for i := range calls {
		calls[i] = &call{key: "key-" + strconv.Itoa(i)}
	}
	killing, stop := context.WithCancel(ctx)
	var killer sync.WaitGroup
	killer.Go(func() { c.kill(killing) })
	defer killer.Wait()
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	for t := range talkers {
		g.Go(func() error {
			for i := t; i < len(calls); i += talkers {
				if err := c.make(ctx, "chaos-"+strconv.Itoa(t), calls[i]); err != nil {
					return fmt.Errorf("%s (run %s): %w", calls[i].key, calls[i].runID, err)
				}
				if n := c.done.Add(1); n%100 == 0 {
					_, _ = fmt.Fprintf(c.Progress, "%d of %d calls, %d kills, %d replacements\n", n, len(calls), c.kills.Load(), c.clears.Load())
				}
			}
			return nil
		})
	}
	return calls, g.Wait()
}

// make asks for one call and waits for the end of its run. A request that fails is
// made again: its key makes it the same run.
func (c *chaos) make(ctx context.Context, conversation string, k *call) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	start := apiclient.Start{
		AgentID: stack.Agent, ConversationID: conversation, IdempotencyKey: k.key,
		Message: `>>call effects.` + toolName + ` {"key":"` + k.key + `"}`,
	}
	k.asked = time.Now()
	err := stack.Until(ctx, func() (bool, error) {
		s, err := c.user.Start(ctx, start)
		k.runID = s.RunID
		return err == nil, err
	})
	if err != nil {
		return err
	}
	if rand.N(clearEvery) == 0 { //nolint:gosec // chance, not secrets
		select {
		case <-time.After(rand.N(maxHaste)): //nolint:gosec // chance, not secrets
		case <-ctx.Done():
		}
		if err := c.clear(ctx, conversation); err != nil {
			return err
		}
	}
	return stack.Until(ctx, func() (bool, error) {
		run, err := c.user.Run(ctx, k.runID)
		k.ended, k.sideEffects = time.Now(), run.SideEffects
		return err == nil && run.State == "ended", err
	})
}

// clear replaces the lease of a conversation, with whatever is under way in it.
func (c *chaos) clear(ctx context.Context, conversation string) error {
	return stack.Until(ctx, func() (bool, error) {
		a, err := c.user.Do(ctx, http.MethodPost, "/api/v1/conversations/"+conversation+"/clear", "application/json",
			strings.NewReader(`{"agent_id":"`+stack.Agent+`"}`))
		if err = errors.Join(err, a.Err()); err == nil {
			c.clears.Add(1)
		}
		return err == nil, err
	})
}

// kill kills one part after the other until ctx ends. Each is started again by
// whoever watches over it; a worker by the next run.
func (c *chaos) kill(ctx context.Context) {
	last := map[string]time.Time{} // of each part, from the first moment on
	for _, p := range parts {
		last[p.program] = time.Now().Add(-p.life / 2)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rand.N(maxCalm)): //nolint:gosec // chance, not secrets
		}
		p := parts[rand.IntN(len(parts))] //nolint:gosec // chance, not secrets
		if time.Since(last[p.program]) >= p.life && c.stack.KillOne(p.program, syscall.SIGKILL) {
			c.kills.Add(1)
			last[p.program] = time.Now()
		}
	}
}

// judge reads the ledger once everything has come to rest.
func (c *chaos) judge(ctx context.Context, calls []*call) (*Report, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(c.stack.Data, "state", "records.db")+"?mode=ro")
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }() // only read
	resting, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	// What is dispatched may stay so: then its outcome is unknown for good.
	_ = stack.Until(resting, func() (bool, error) {
		err := readRows(ctx, db, calls)
		under := slices.ContainsFunc(calls, func(k *call) bool { return k.state() == rowDispatched })
		return err == nil && !under, err
	})
	if err := readRows(ctx, db, calls); err != nil {
		return nil, err
	}
	byKey := make(map[string]*call, len(calls))
	for _, k := range calls {
		byKey[k.key] = k
	}
	r := &Report{Kills: int(c.kills.Load()), Replacements: int(c.clears.Load())}
	for _, e := range c.counter.seen() {
		k := byKey[e.key]
		if k == nil {
			return nil, fmt.Errorf("an effect of a key that nobody has: %q", e.key)
		}
		k.effects = append(k.effects, e.at)
	}
	r.judge(calls)
	if got := linearizable(calls, c.begun, time.Now()); got != porcupine.Ok {
		r.Violations++
		r.wrong = append(r.wrong, "the history as a whole is "+string(got))
	}
	return r, nil
}

// readRows reads the states of all rows of the calls.
func readRows(ctx context.Context, db *sql.DB, calls []*call) error {
	byRun := make(map[string]*call, len(calls))
	for _, k := range calls {
		k.rows, byRun[k.runID] = nil, k
	}
	rows, err := db.QueryContext(ctx, `SELECT run_id, state FROM binding_ledger WHERE kind = 'tool' ORDER BY run_id, key`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err tells
	for rows.Next() {
		var run, state string
		if err := rows.Scan(&run, &state); err != nil {
			return err
		}
		if k := byRun[run]; k != nil {
			k.rows = append(k.rows, state)
		}
	}
	return rows.Err()
}
