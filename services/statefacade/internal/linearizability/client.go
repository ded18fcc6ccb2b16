package linearizability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/statefacade/internal/memory"
)

const (
	// window is how many bindings clients are at, at a time: as many as let each have
	// a few at once, because what a checker has to try grows with that number.
	window = 16
	// opsPerBinding and opsPerRecord say how many there are in a history.
	opsPerBinding = 40
	opsPerRecord  = 80
	// tries is how often a client repeats an operation whose outcome it was not
	// told, before it gives up.
	tries = 6
	// patience bounds one try, and haste one of twenty.
	patience = 20 * time.Second
	haste    = 4 * time.Millisecond
	// idle is how long a client waits at most that had nothing to do.
	idle = 100 * time.Millisecond
	// kept is how many views of a binding a client goes back to.
	kept = 4
	// maxEnding is how many leases may wait before somebody concludes them.
	maxEnding = 4
)

// plan is what the clients of one process are to do. It goes to the process as
// JSON.
type plan struct {
	// Store is its location, Bindings and Records how many there are in it.
	Store    string `json:"store"`
	Bindings int    `json:"bindings"`
	Records  int    `json:"records"`
	// First client and number of clients, of Ops operations each, of which From were
	// made by a process before.
	First   int `json:"first"`
	Clients int `json:"clients"`
	From    int `json:"from"`
	Ops     int `json:"ops"`
	// Life is different for each process.
	Life int    `json:"life"`
	Seed uint64 `json:"seed"`
	// Plant has the first client write without a fence.
	Plant kind `json:"plant,omitempty"`
}

// client does one thing after the other.
type client struct {
	plan    plan
	n       int // of the client
	made    int // operations
	rand    *rand.Rand
	line    *line
	stores  *stores
	writer  *binding.Writer
	effects *binding.Effects
	guard   *fence.Guard
	memory  *memory.Service
	called  func(client int, op Operation, at int64)
	ended   func(client int, o Outcome, at int64)
	told    map[result]int
	plants  int // writes without their fence
	views   map[string][]*view
}

// view is what a client once saw of a binding, and the grant that it got then.
type view struct {
	id         string
	generation uint32
	run        string
	head       uint64
	events     uint64
	ended      bool
	ending     []binding.Ending
	grant      *fence.Grant // none without a run
	used       bool         // for a memory write: its key is used once
}

func newClient(p plan, n int, s *stores) *client {
	seed := rand.New(rand.NewPCG(p.Seed, uint64(p.Life)<<16|uint64(n))) //nolint:gosec // a test
	c := &client{
		plan: p, n: n, rand: seed, stores: s, views: map[string][]*view{}, told: map[result]int{},
		line: &line{rand: rand.New(rand.NewPCG(seed.Uint64(), seed.Uint64()))}, //nolint:gosec // a test
	}
	lossy := bindingtest.Tap{To: s.records, On: c.line.fate}
	c.writer = binding.NewWriter(lossy, time.Now)
	c.effects, c.guard = binding.NewEffects(c.writer), fence.NewGuard(c.writer, time.Now)
	planted := p.Plant == opPut && n == p.First
	c.memory = memory.New(memory.Config{
		Records: lossy, Effects: c.effects, Store: lossyMemory{Store: s.memory, line: c.line, unfenced: planted},
		Secrets: s.secrets, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	return c
}

// run makes operations until it has its number, or ctx ends.
func (c *client) run(ctx context.Context) error {
	for c.made = c.plan.From; c.made < c.plan.Ops || c.plants < c.toPlant(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		before := c.made
		if err := c.turn(ctx); err != nil {
			return fmt.Errorf("client %d: %w", c.n, err)
		}
		if c.made == before { // nothing to do there, for now
			c.line.wait(idle)
		}
	}
	return nil
}

// at is where the client is in a row of things, all of which it passes.
func (c *client) at(things int) int {
	return (c.made*things/max(1, c.plan.Ops) + c.rand.IntN(window)) % things
}

// toPlant is how many writes without a fence the client has still to make at least.
func (c *client) toPlant() int {
	switch {
	case c.plan.Plant == "" || c.n != c.plan.First:
		return 0
	case c.plan.Plant == opPut:
		return 2 // the first one may be right
	default:
		return 1
	}
}

// turn makes one operation, or does what is not part of the history: what is ended
// is concluded.
func (c *client) turn(ctx context.Context) error {
	v, err := c.look(ctx, bindingID(c.at(c.plan.Bindings)))
	if err != nil {
		return nil //nolint:nilerr // the store did not answer; the next turn asks again
	}
	switch {
	case len(v.ending) >= maxEnding, v.ended, v.run == "" && hasRun(v.ending):
		if c.rand.IntN(4) == 0 { // a few at once are enough to be in each other's way
			c.conclude(ctx, v)
		}
		if !v.ended || c.rand.IntN(2) == 0 {
			return nil
		}
	case v.generation == 0:
		return c.replace(ctx, v)
	case v.run == "" && c.rand.IntN(3) > 0 && c.toPlant() == 0:
		return nil // somebody else will start a run
	case v.run == "":
		return c.start(ctx, v)
	}
	switch {
	case c.plants >= c.toPlant() || v.grant == nil || v.ended:
	case v.events == 0:
		return c.append(ctx, v)
	default:
		return c.plant(ctx, v)
	}
	if old := c.views[v.id]; c.rand.IntN(4) == 0 {
		v = old[c.rand.IntN(len(old))]
	}
	return c.something(ctx, v)
}

func hasRun(ending []binding.Ending) bool {
	for _, e := range ending {
		if e.Run != nil {
			return true
		}
	}
	return false
}

func (c *client) something(ctx context.Context, v *view) error {
	n := c.rand.IntN(100)
	switch {
	case n < 10:
		return c.replace(ctx, v)
	case v.grant == nil: // a view from before a run
		return nil
	case n < 16 || v.events == 0 && n < 45:
		return c.append(ctx, v)
	case n < 45:
		return c.commit(ctx, v)
	case n < 65:
		return c.admit(ctx, v)
	case n < 95 && !v.used:
		return c.put(ctx, v)
	default:
		return c.get(ctx, v)
	}
}

// look reads the binding and keeps what it saw.
func (c *client) look(ctx context.Context, id string) (*view, error) {
	r, err := c.stores.records.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	v := &view{id: id, generation: r.Generation, head: r.Head.Revision, ending: r.Ending}
	if r.Run != nil {
		v.run, v.events, v.ended = r.Run.ID, r.Run.EventHead, !r.Run.End.Open()
		e := fence.Envelope{
			BindingID: id, Epoch: r.Epoch, Generation: r.Generation, RunID: v.run,
			RequestID: "request", IdempotencyKey: c.name(), Deadline: time.Now().Add(time.Hour),
		}
		if g, err := c.guard.Admit(ctx, e); err == nil {
			v.grant = &g
		}
	}
	c.views[id] = append(c.views[id], v)
	if n := len(c.views[id]); n > kept {
		c.views[id] = c.views[id][n-kept:]
	}
	return v, nil
}

// name is new each time, and says nothing that a scanner of secrets takes for one.
func (c *client) name() string {
	return fmt.Sprintf("op-%d-%d-%d-%d", c.n, c.plan.Life, c.made, c.rand.IntN(1_000_000))
}

// conclude does what a replica does with what is ending. Others may do it too.
func (c *client) conclude(ctx context.Context, v *view) {
	if v.ended {
		_ = c.writer.TakeOver(ctx, v.id, v.run, owner, 0)
		_, _ = c.writer.ConcludeRun(ctx, v.id, v.run, closing)
	}
	for _, e := range v.ending {
		if e.Run != nil {
			_, _ = c.writer.ConcludeRun(ctx, v.id, e.Run.ID, closing)
		}
		if e.Lease != nil {
			_ = c.writer.DropLease(ctx, v.id, e.Lease.ClaimName)
		}
	}
}

const owner = "replica/1"

func closing(r binding.Run, _ string) (binding.Batch, error) {
	return binding.Batch{Nonce: "closing", First: r.EventHead, Events: []json.RawMessage{json.RawMessage(`{"type":"terminal"}`)}}, nil
}

// do makes an operation and records it. An operation whose outcome the store did
// not tell is repeated, and given up in the end.
func (c *client) do(ctx context.Context, op Operation, try func(context.Context) (Outcome, error)) error {
	c.made++
	c.line.answersLost()
	c.called(c.n, op, now())
	lost := false
	o := Outcome{Result: unknown}
	for range tries {
		limit := patience
		if c.rand.IntN(20) == 0 {
			limit = haste
		}
		tctx, cancel := context.WithTimeout(ctx, limit)
		told, err := try(tctx)
		told.Result = resultOf(err)
		lost = c.line.answersLost() || tctx.Err() != nil || told.Result == unknown || lost
		cancel()
		if told.Result != unknown {
			o = told
			break
		}
	}
	if ctx.Err() != nil {
		return ctx.Err() // it stays open in the history
	}
	o.Lost = lost
	c.told[o.Result]++
	c.ended(c.n, o, now())
	return nil
}

// now is the same clock for all processes of a machine.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("linearizability: no monotonic clock: " + err.Error())
	}
	return t.Nano()
}

// resultOf an error. What it does not know no model explains.
func resultOf(err error) result {
	if err == nil {
		return done
	}
	if errors.Is(err, binding.ErrEnded) {
		return refused
	}
	switch code := fault.CodeOf(err); code {
	case fault.StaleLease:
		return stale
	case fault.RevisionConflict, fault.MemoryRevisionConflict:
		return conflict
	case fault.AlreadyRunning, fault.Capacity:
		return refused
	case fault.DependencyUnavailable, fault.DeadlineExceeded, fault.Cancelled, fault.PersistenceFailed, fault.ToolOutcomeUnknown:
		return unknown
	default:
		return result(fmt.Sprintf("impossible: %s: %v", code, err))
	}
}

func claimName(id string) func(uint32) string {
	return func(g uint32) string { return binding.ClaimName(id, g) }
}

func (c *client) replace(ctx context.Context, v *view) error {
	return c.do(ctx, Operation{ID: c.name(), Kind: opReplace, Key: v.id, Generation: v.generation}, func(ctx context.Context) (Outcome, error) {
		r, err := c.writer.Replace(ctx, v.id, 1, v.generation, claimName(v.id), "profile")
		return Outcome{Revision: uint64(r.Generation)}, err
	})
}

func (c *client) start(ctx context.Context, v *view) error {
	name := c.name()
	run := binding.RunID(v.id, 1, name)
	return c.do(ctx, Operation{ID: name, Kind: opStart, Key: v.id, Run: run}, func(ctx context.Context) (Outcome, error) {
		_, err := c.writer.Start(ctx, binding.StartParams{
			BindingID: v.id, RunID: run, RequestID: name, KeyDigest: name, ContentDigest: name, Epoch: 1,
			Deadline: time.Now().Add(time.Hour), Owner: owner,
		})
		return Outcome{}, err
	})
}

func (c *client) append(ctx context.Context, v *view) error {
	name := c.name()
	b := binding.Batch{Nonce: name, First: v.events, Events: []json.RawMessage{json.RawMessage(`{"type":"event"}`)}}
	return c.do(ctx, c.operation(v, opAppend, name), func(ctx context.Context) (Outcome, error) {
		_, err := c.writer.Append(ctx, *v.grant, owner, b)
		return Outcome{}, err
	})
}

func (c *client) operation(v *view, k kind, name string) Operation {
	return Operation{ID: name, Kind: k, Key: v.id, Generation: v.generation, Run: v.run}
}

// admit lets one of a few effects happen, whose body says by whom it did.
func (c *client) admit(ctx context.Context, v *view) error {
	op := c.operation(v, opAdmit, c.name())
	op.Effect = fmt.Sprintf("call-%d", c.rand.IntN(6))
	acted := 0
	return c.do(ctx, op, func(ctx context.Context) (Outcome, error) {
		out, err := c.effects.Do(ctx, *v.grant, binding.Effect{Key: op.Effect, Kind: "tool", ArgsDigest: "same", Limit: time.Second},
			func(context.Context) ([]byte, error) {
				acted++
				return []byte(op.ID), nil
			})
		if acted > 1 {
			return Outcome{Body: "it happened twice"}, nil
		}
		return Outcome{Body: string(out.Body)}, err
	})
}

func (c *client) commit(ctx context.Context, v *view) error {
	op := c.operation(v, opCommit, c.name())
	op.Expected = v.head
	if c.rand.IntN(8) == 0 {
		op.Expected++
	}
	return c.do(ctx, op, func(ctx context.Context) (Outcome, error) {
		head, _, err := c.writer.CommitHead(ctx, *v.grant, headCommit(op))
		return Outcome{Revision: head.Revision}, err
	})
}

func headCommit(op Operation) binding.HeadCommit {
	return binding.HeadCommit{ExpectedRevision: op.Expected, Codec: "test", CodecVersion: 1, SnapshotRef: op.ID, SHA256: op.ID, IdempotencyDigest: op.ID}
}

func (c *client) caller(v *view) (memory.Caller, error) {
	id, err := spiffeid.FromString("spiffe://test/sandbox/instance")
	return memory.Caller{Grant: *v.grant, ID: id, Scopes: []string{string(memory.ScopeUser)}}, err
}

func (c *client) recordName() string { return fmt.Sprintf("record-%d", c.at(c.plan.Records)) }

// put writes a memory record, most of the time over the revision that stands.
func (c *client) put(ctx context.Context, v *view) error {
	name := c.recordName()
	caller, err := c.caller(v)
	if err != nil {
		return err
	}
	r, err := c.memory.Get(ctx, caller, memory.ScopeUser, name)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil // a grant that is over reads nothing
	}
	expected := r.Revision
	if c.rand.IntN(5) == 0 {
		expected = uint64(c.rand.IntN(4)) //nolint:gosec // small
	}
	return c.putAt(ctx, v, name, expected)
}

func (c *client) putAt(ctx context.Context, v *view, name string, expected uint64) error {
	caller, err := c.caller(v)
	if err != nil {
		return err
	}
	v.used = true
	op := c.operation(v, opPut, v.grant.Envelope().IdempotencyKey)
	op.Key, op.Binding, op.Expected = memoryKey(name), v.id, expected
	p := memory.Put{Scope: memory.ScopeUser, Key: name, Kind: memory.KindSemantic, ContentType: memory.TypeText, Content: []byte(op.ID)}
	if op.Expected > 0 {
		p.Expected = &op.Expected
	}
	return c.do(ctx, op, func(ctx context.Context) (Outcome, error) {
		s, err := c.memory.Put(ctx, caller, p)
		return Outcome{Revision: s.Revision}, err
	})
}

func (c *client) get(ctx context.Context, v *view) error {
	name := c.recordName()
	caller, err := c.caller(v)
	if err != nil {
		return err
	}
	op := c.operation(v, opGet, c.name())
	op.Key = memoryKey(name)
	return c.do(ctx, op, func(ctx context.Context) (Outcome, error) {
		r, err := c.memory.Get(ctx, caller, memory.ScopeUser, name)
		if fault.Is(err, fault.NotFound) {
			return Outcome{}, nil
		}
		return Outcome{Revision: r.Revision, Body: string(r.Content)}, err
	})
}
