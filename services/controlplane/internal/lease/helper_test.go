package lease_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	bindingID = "hs_under_test"
	owner     = "cp-test"
)

var (
	td          = spiffeid.RequireTrustDomainFromString("cofferdam.test")
	errInjected = errors.New("injected")
)

// world is a Manager on a real record, with everything around it watched.
type world struct {
	*lease.Manager
	store    *rpctest.Backend
	writer   *binding.Writer
	provider *provider
	workers  *workers
	minter   *minter
	tools    *tools
	agent    agents.Agent
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, func(*lease.Config) {})
}

func newWorldWith(t *testing.T, change func(*lease.Config)) *world {
	t.Helper()
	w := &world{store: &rpctest.Backend{Backend: bindingtest.NewMemory()}}
	w.writer = binding.NewWriter(w.store, time.Now)
	w.provider = &provider{Provider: runstest.NewProvider(td), writer: w.writer}
	w.workers = &workers{Workers: runstest.NewWorkers(nil)}
	w.minter, w.tools = &minter{}, &tools{}
	w.agent = agents.Agent{
		ID: "demo", Version: 3, Name: "Demo", Harness: runstest.HarnessID, AdapterVersion: runstest.AdapterVersion,
		HarnessOptions: map[string]any{"n": json.Number("12345678901234567890")}, ModelAlias: "small", Prompt: "Be kind.", Profile: "default", MemoryScopes: []string{"user"},
		Limits: agents.Limits{MaxModelCalls: 4, MaxToolCalls: 5, MaxOutputTokens: 6},
	}
	cfg := lease.Config{
		Writer: w.writer, Guard: fence.NewGuard(w.writer, time.Now), Provider: w.provider, Workers: w.workers,
		Minter: w.minter, Tools: w.tools, TrustDomain: td, Owner: owner, Logger: slog.New(slog.DiscardHandler),
		Endpoints: worker.Endpoints{ModelProxy: rpc.Endpoint{Address: "https://modelproxy.invalid"}},
	}
	change(&cfg)
	w.Manager = lease.New(cfg)
	ctx := t.Context()
	_, _, err := w.store.Insert(ctx, binding.Record{ID: bindingID, Identity: binding.Identity{ConversationID: "conversation-1", HarnessID: "native"}})
	must(t, err)
	_, err = w.Replace(ctx, w.record(t), w.agent.Profile)
	must(t, err)
	return w
}

// run commits a run and gives what asks for its worker.
func (w *world) run(t *testing.T) lease.Request {
	t.Helper()
	r, deadline := w.record(t), time.Now().Add(10*time.Minute).UTC()
	id := "run_" + rand.Text()
	_, err := w.writer.Start(t.Context(), binding.StartParams{
		BindingID: bindingID, Epoch: r.Epoch, RunID: id, RequestID: "request", KeyDigest: id, ContentDigest: "content", Deadline: deadline, Owner: owner,
	})
	must(t, err)
	return lease.Request{Agent: w.agent, Envelope: fence.Envelope{
		BindingID: bindingID, Epoch: r.Epoch, Generation: r.Generation, RunID: id, RequestID: "request", IdempotencyKey: "run", Deadline: deadline,
	}}
}

// end takes the run away, as a takeover and its conclusion do.
func (w *world) end(t *testing.T, req lease.Request) {
	t.Helper()
	must(t, w.writer.TakeOver(t.Context(), bindingID, req.Envelope.RunID, owner, 0))
	_, err := w.writer.ConcludeRun(t.Context(), bindingID, req.Envelope.RunID, func(r binding.Run, _ string) (binding.Batch, error) {
		return binding.Batch{Nonce: rand.Text(), First: r.EventHead, Events: []json.RawMessage{json.RawMessage(`{"type":"terminal"}`)}}, nil
	})
	must(t, err)
}

// acquire must succeed.
func (w *world) acquire(t *testing.T, req lease.Request) lease.Held {
	t.Helper()
	h, err := w.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return h
}

// refused fails unless Acquire fails with the code.
func (w *world) refused(t *testing.T, req lease.Request, want fault.Code) {
	t.Helper()
	if h, err := w.Acquire(t.Context(), req); !fault.Is(err, want) {
		t.Errorf("acquire: %+v, %v, want %s", h.Record.Lease, err, want)
	}
}

func (w *world) record(t *testing.T) binding.Record {
	t.Helper()
	r, err := w.store.Load(context.WithoutCancel(t.Context()), bindingID)
	must(t, err)
	return r
}

// replace commits the next generation, as somebody else.
func (w *world) replace(ctx context.Context) (binding.Record, error) {
	r, err := w.store.Load(ctx, bindingID)
	if err != nil {
		return r, err
	}
	return w.Replace(ctx, r, "default")
}

// provider writes down what is claimed, and what was committed then.
type provider struct {
	*runstest.Provider
	writer *binding.Writer
	// before runs before each claim, with its place in the order.
	before func(ctx context.Context, n int, c sandbox.Claim) error

	mu       sync.Mutex
	claims   []claimed
	released []string
	gone     map[string]bool
}

type claimed struct {
	name       string
	generation uint32
	current    bool // the name is that of the committed lease
}

func (p *provider) Claim(ctx context.Context, c sandbox.Claim) (sandbox.Instance, error) {
	r, err := p.writer.Backend().Load(ctx, bindingID)
	if err != nil {
		return sandbox.Instance{}, err
	}
	p.mu.Lock()
	p.claims = append(p.claims, claimed{c.Name, r.Generation, r.Lease != nil && r.Lease.ClaimName == c.Name && c.Harness == runstest.HarnessID && c.Profile == "default"})
	n := len(p.claims)
	p.mu.Unlock()
	if p.before != nil {
		if err := p.before(ctx, n, c); err != nil {
			return sandbox.Instance{}, err
		}
	}
	return p.Provider.Claim(ctx, c)
}

func (p *provider) Release(ctx context.Context, name string) error {
	p.mu.Lock()
	p.released = append(p.released, name)
	p.mu.Unlock()
	return p.Provider.Release(ctx, name)
}

// Alive lets a test say that an instance died.
func (p *provider) Alive(ctx context.Context, name, uid string) (bool, error) {
	p.mu.Lock()
	gone := p.gone[uid]
	p.mu.Unlock()
	if gone {
		return false, nil
	}
	return p.Provider.Alive(ctx, name, uid)
}

// kill ends an instance as SIGKILL would; nobody reads exits here.
func (p *provider) kill(t *testing.T, name string) {
	t.Helper()
	must(t, p.Provider.Release(t.Context(), name))
}

// generations are those that were committed at each claim.
func (p *provider) generations() []uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []uint32
	for _, c := range p.claims {
		out = append(out, c.generation)
	}
	return out
}

// workers are those of runstest, which can be made to lie.
type workers struct {
	*runstest.Workers
	ready func(ctx context.Context, uid string, r worker.Ready) (worker.Ready, error)
	bind  func(ctx context.Context, uid string) error

	mu    sync.Mutex
	bound []bound
	open  int
}

type bound struct {
	uid, token string
	worker.Binding
}

func (w *workers) Dial(in sandbox.Instance) (worker.Client, error) {
	c, err := w.Workers.Dial(in)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open++
	return &client{Client: c, all: w, uid: in.UID}, err
}

func (w *workers) binds() []bound {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]bound(nil), w.bound...)
}

// unclosed is how many clients nobody has closed.
func (w *workers) unclosed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}

type client struct {
	worker.Client
	all *workers
	uid string
}

func (c *client) Ready(ctx context.Context) (worker.Ready, error) {
	r, err := c.Client.Ready(ctx)
	if err == nil && c.all.ready != nil {
		return c.all.ready(ctx, c.uid, r)
	}
	return r, err
}

func (c *client) Bind(ctx context.Context, token string, b worker.Binding) error {
	if c.all.bind != nil {
		if err := c.all.bind(ctx, c.uid); err != nil {
			return err
		}
	}
	c.all.mu.Lock()
	c.all.bound = append(c.all.bound, bound{c.uid, token, b})
	c.all.mu.Unlock()
	return c.Client.Bind(ctx, token, b)
}

func (c *client) Close() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.open--
}

// minter writes down what is asked for.
type minter struct {
	change func([]worker.Token) []worker.Token
	mint   func(ctx context.Context) error

	mu    sync.Mutex
	asked []minted
}

type minted struct {
	env            fence.Envelope
	subject, owner string
	scopes         []lease.Scope
}

func (m *minter) Mint(ctx context.Context, env fence.Envelope, subject, owner string, scopes []lease.Scope) ([]worker.Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, minted{env, subject, owner, scopes})
	if m.mint != nil {
		if err := m.mint(ctx); err != nil {
			return nil, err
		}
	}
	out := make([]worker.Token, len(scopes))
	for i, s := range scopes {
		out[i] = worker.Token{Audience: string(s.Audience), Token: string(s.Audience) + "/" + env.RunID, ID: "jti-" + rand.Text()}
	}
	if m.change != nil {
		out = m.change(out)
	}
	return out, nil
}

// tools is a ToolBroker.
type tools struct {
	list func(ctx context.Context, patterns []string) ([]worker.Tool, []string, error)
}

func (t *tools) ListTools(ctx context.Context, patterns []string) ([]worker.Tool, []string, error) {
	if t.list == nil {
		return nil, nil, errInjected
	}
	return t.list(ctx, patterns)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
