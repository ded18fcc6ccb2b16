package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/worker/internal/conformance/internal/rpc/brokers"
	"cofferdam.dev/services/worker/internal/harness"
	workerrpc "cofferdam.dev/services/worker/internal/rpc"
	"cofferdam.dev/services/worker/internal/session"
	"cofferdam.dev/services/worker/internal/workerclient"
)

const (
	conversation = "conversation-1"
	imageDigest  = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	modelAlias   = "main"
	// patience is how long anything may take that is not made to wait.
	patience = 30 * time.Second
)

// bench is what stands around the workers of one fixture: it is their control
// plane.
type bench struct {
	*testing.T

	setup  Setup
	wireOf func(*rpctest.Client) workerclient.Client
	ground *ground
	// stand has the binding of the fixture, and brokers what they keep for it.
	stand   *rpctest.Stand
	brokers *brokers.Binding
	logs    *logs
	// started says that the Stand's first run was used.
	started bool
	// change is what a fixture wants to be otherwise in each bind.
	change func(*workerclient.Bind)
	// telemetry of the fixture's workers and of their control plane, whose requests
	// belong to trace.
	telemetry *telemetry.Telemetry
	trace     trace.SpanContext
	// keys are what the fixture judges, and found what it says of them.
	keys  []string
	found levels
}

// only says that a capability is less than native.
func (b *bench) only(key string, l harness.Level) {
	b.Helper()
	if !slices.Contains(b.keys, key) {
		b.Fatalf("this fixture does not judge %s", key)
	}
	b.found[key] = l
}

func newBench(t *testing.T, s Setup, g *ground, wireOf func(*rpctest.Client) workerclient.Client) *bench {
	t.Helper()
	b := &bench{T: t, setup: s, wireOf: wireOf, ground: g, logs: &logs{}, telemetry: g.stand.Telemetry}
	b.newBinding()
	return b
}

// newBinding makes another binding the fixture's, at a conversation of which
// nobody knows anything.
func (b *bench) newBinding() {
	b.Helper()
	b.stand, b.started = b.ground.stand.Another(b.T, func(i *binding.Identity) { i.Subject = "user-" + rand.Text() }), false
	b.brokers = b.ground.brokers.Of(b.stand.BindingID)
}

// worker is one worker, served over mutual TLS.
type worker struct {
	bench   *bench
	session *session.Session
	expect  session.Info
	url     string
	rpc     *connect.Client
	bound   bool
	// by is the id of the capability that bound it.
	by string
}

// worker makes a fresh one.
func (b *bench) worker() *worker {
	b.Helper()
	logger := slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	workspace := b.TempDir()
	adapter := b.setup.New(b.T, workspace, logger)
	w := &worker{bench: b, expect: session.Info{
		HarnessID: adapter.Descriptor().ID, AdapterVersion: adapter.Descriptor().AdapterVersion, ImageDigest: imageDigest, BootNonce: "nonce-" + rand.Text(),
	}}
	w.session = session.New(session.Config{
		Adapter: adapter, ImageDigest: imageDigest, BootNonce: w.expect.BootNonce, Logger: logger, Workspace: workspace,
	})
	cfg := b.stand.RPC()
	cfg.Telemetry = b.telemetry
	cfg.Guard, cfg.Validator = fence.NewGuard(w.session, time.Now), b.ground.validate
	self := b.ground.sandbox
	h, err := workerrpc.Handler(cfg, workerrpc.New(w.session, self, b.telemetry), rpctest.ServiceID("controlplane"), self.ID())
	b.must(err)
	w.url = b.ground.serve(b.T, h)
	w.rpc, err = rpc.NewClient(b.ground.http, w.url, b.telemetry)
	b.must(err)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), patience)
		defer cancel()
		b.must(w.session.Shutdown(ctx))
	})
	return w
}

// client speaks to the worker with a capability for the run of an envelope.
func (w *worker) client(e fence.Envelope) (client workerclient.Client, jti string) {
	b := w.bench
	b.Helper()
	jti = "jti-" + rand.Text()
	token := b.stand.Minter.Mint(capability.Claims{
		ID: jti, Audience: capability.HarnessWorker, Subject: rpctest.SandboxID(),
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
	})
	return b.wireOf(&rpctest.Client{RPC: w.rpc, HTTP: b.ground.http, BaseURL: w.url, Token: token}), jti
}

// tokens of a run, for every broker.
func (b *bench) tokens(e fence.Envelope) []session.Token {
	var out []session.Token
	for _, a := range []capability.Audience{capability.ToolBroker, capability.ThreadState, capability.Memory, capability.ModelProxy, capability.FileBroker} {
		c := capability.Claims{
			Audience: a, Subject: rpctest.SandboxID(), BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
		}
		switch a {
		case capability.ToolBroker:
			c.Tools = brokers.IDs()
		case capability.Memory:
			c.MemoryScopes = []string{string(harness.MemoryUser), string(harness.MemoryAgent)}
		case capability.ModelProxy:
			c.ModelAlias = modelAlias
		case capability.FileBroker:
			if c.Handles = b.brokers.Handles(); len(c.Handles) == 0 {
				continue
			}
		case capability.HarnessWorker, capability.ThreadState:
		}
		out = append(out, session.Token{Audience: string(a), Token: b.stand.Minter.Mint(c)})
	}
	return out
}

// bindRequest is the right one for the run of an envelope.
func (w *worker) bindRequest(e fence.Envelope, pending *session.Interrupt) workerclient.Bind {
	b := w.bench
	req := workerclient.Bind{
		Envelope: e, ConversationID: conversation, Expected: w.expect, Brokers: b.ground.brokers.Endpoint(), Tokens: b.tokens(e), Pending: pending,
		Grace: 5 * time.Second,
		Construction: harness.Construction{
			AgentID: "agent-1", AgentName: "Agent", Options: b.setup.Options, Prompt: "You are tested.",
			Model:      harness.ModelConfig{Alias: modelAlias, Wire: b.setup.Wire, Images: true, Documents: true},
			Tools:      brokers.Tools(),
			Interrupts: harness.InterruptPolicy{FormInput: true, ToolApproval: true}, MemoryScopes: []harness.MemoryScope{harness.MemoryUser, harness.MemoryAgent},
			Limits: harness.Limits{ModelCalls: 16, ToolCalls: 16, StateBytes: 512 << 10},
		},
	}
	if b.change != nil {
		b.change(&req)
	}
	return req
}

// bind binds the worker to the run of an envelope, once.
func (w *worker) bind(e fence.Envelope, pending *session.Interrupt) {
	w.bench.Helper()
	if w.bound {
		return
	}
	c, jti := w.client(e)
	ctx, cancel := context.WithTimeout(w.bench.Context(), patience)
	defer cancel()
	w.bench.must(c.Bind(ctx, w.bindRequest(e, pending)))
	w.bound, w.by = true, jti
}

// nextRun commits the next run, as a control plane does before it sends it.
func (b *bench) nextRun() fence.Envelope {
	b.Helper()
	if b.started {
		b.stand.StartRun(b.T, "run_"+rand.Text())
	}
	b.started = true
	e := b.stand.Envelope()
	e.IdempotencyKey = "run"
	return e
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) wantCode(err error, want fault.Code) {
	b.Helper()
	if fault.CodeOf(err) != want {
		b.Errorf("got %v, want %s", err, want)
	}
}

// logs is what a worker logs.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), s)
}
