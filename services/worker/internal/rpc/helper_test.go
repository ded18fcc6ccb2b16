package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	conversation = "conversation-1"
	digest       = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	nonce        = "nonce-1"
)

// script is what the harness does in a run.
type script func(ctx context.Context, emit harness.Emitter) error

// facadesOf carries the facades of a run to a script that asks for them.
type facadesOf struct{}

// asks is a script that interrupts its run.
func asks(i event.InterruptRequested) script {
	return func(ctx context.Context, emit harness.Emitter) error {
		if err := emit.Emit(ctx, event.Draft{Data: i}); err != nil {
			return err
		}
		f, _ := ctx.Value(facadesOf{}).(harness.Facades)
		return f.Thread.Interrupt(ctx, harness.Codec{}, 0, nil)
	}
}

func askForm(id string) event.InterruptRequested {
	return event.InterruptRequested{
		InterruptID: id, InterruptType: event.InterruptFormInput, AgentID: "agent", Prompt: "a < b?",
		Fields: []event.FormField{{FieldName: "city", FieldType: "text", Required: true}},
	}
}

// scripted is an adapter that plays a script; its runs commit nothing.
type scripted struct {
	mu     sync.Mutex
	script script
	// version is the adapter's; empty is 1.0.0.
	version string

	// decisions that were resumed with.
	decisions []harness.Decision

	initialized, streams, ended atomic.Int64
}

func (a *scripted) Descriptor() harness.Descriptor {
	if a.version == "" {
		a.version = "1.0.0"
	}
	return harness.Descriptor{ID: "scripted", AdapterVersion: a.version}
}

func (*scripted) Health(context.Context) error { return nil }

func (a *scripted) Initialize(context.Context, harness.Construction) (harness.Runtime, error) {
	a.initialized.Add(1)
	return a, nil
}

func (a *scripted) Stream(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	a.streams.Add(1)
	defer a.ended.Add(1)
	a.mu.Lock()
	s := a.script
	a.mu.Unlock()
	return harness.Result{}, s(context.WithValue(ctx, facadesOf{}, f), emit)
}

func (a *scripted) Resume(ctx context.Context, d harness.Decision, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	a.mu.Lock()
	a.decisions = append(a.decisions, d)
	a.mu.Unlock()
	return a.Stream(ctx, harness.Turn{}, f, emit)
}

func (*scripted) Cleanup(context.Context) error { return nil }

func (a *scripted) play(s script) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.script = s
}

// says emits a message; the run then fails, for nothing was committed.
func says(text string) script {
	return func(ctx context.Context, emit harness.Emitter) error {
		return errors.Join(
			emit.Emit(ctx, event.Draft{Data: event.TextStarted{MessageID: "m"}}),
			emit.Emit(ctx, event.Draft{Data: event.TextDelta{MessageID: "m", Delta: text}}),
			emit.Emit(ctx, event.Draft{Data: event.TextFinished{MessageID: "m"}}),
			fault.New(fault.ModelFailed, "test"))
	}
}

func waits(ctx context.Context, emit harness.Emitter) error {
	if err := emit.Emit(ctx, event.Draft{Data: event.TextStarted{MessageID: "m"}}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// flood is the size of one delta of floods, in bytes: what a reader takes
// unread is full of these soon, on a slow machine too.
const flood = 32 << 10

// floods emits until it is stopped, and counts.
func floods(emitted *atomic.Int64) script {
	return func(ctx context.Context, emit harness.Emitter) error {
		err := emit.Emit(ctx, event.Draft{Data: event.TextStarted{MessageID: "m"}})
		for err == nil {
			if err = emit.Emit(ctx, event.Draft{Data: event.TextDelta{MessageID: "m", Delta: strings.Repeat("x", flood)}}); err == nil {
				emitted.Add(flood)
			}
		}
		return err
	}
}

// nowhere is a connector whose facades commit interrupts and nothing else.
type nowhere struct{}

func (nowhere) Connect(_ fence.Envelope, _ []session.Token, point session.CommitPoint) (harness.Facades, error) {
	return harness.Facades{Thread: thread{point: point}}, nil
}

func (nowhere) Close() {}

type thread struct {
	harness.ThreadState // what no script asks for

	point session.CommitPoint
}

func (t thread) Interrupt(context.Context, harness.Codec, uint64, []byte) error {
	_, _, err := t.point.CoverInterrupt()
	if err == nil {
		t.point.Interrupted(1)
	}
	return err
}

// worker is a worker under test.
type worker struct {
	*session.Session
	stand   *rpctest.Stand
	adapter *scripted
	service *Service
	handler http.Handler
}

// open makes an unbound worker on a Stand.
func open(t *testing.T, s *rpctest.Stand) *worker {
	t.Helper()
	return openWith(t, s, &scripted{})
}

func openWith(t *testing.T, s *rpctest.Stand, a *scripted) *worker {
	t.Helper()
	w := &worker{stand: s, adapter: a}
	w.adapter.play(says("hello"))
	w.Session = session.New(session.Config{Adapter: w.adapter, ImageDigest: digest, BootNonce: nonce, Logger: s.Logger})
	cfg := s.RPC()
	cfg.Guard = fence.NewGuard(w.Session, time.Now)
	source := s.Source(t, rpctest.SandboxID())
	w.service = New(w.Session, source, s.Telemetry)
	h, err := Handler(cfg, w.service, rpctest.ServiceID("controlplane"), source.ID())
	must(t, err)
	w.handler = h
	t.Cleanup(func() { must(t, w.Shutdown(context.WithoutCancel(t.Context()))) })
	return w
}

// bound is open, and bound to the run of the Stand.
func bound(t *testing.T, s *rpctest.Stand) *worker {
	t.Helper()
	return boundWith(t, s, &scripted{})
}

func boundWith(t *testing.T, s *rpctest.Stand, a *scripted) *worker {
	t.Helper()
	w := openWith(t, s, a)
	must(t, w.Bind(t.Context(), session.Bind{
		Envelope: s.Envelope(), ConversationID: conversation,
		Expected:   session.Info{HarnessID: "scripted", AdapterVersion: a.Descriptor().AdapterVersion, ImageDigest: digest, BootNonce: nonce},
		Capability: session.Capability{ID: "jti-of-bind"}, Tokens: []session.Token{{}},
	}, func() (session.Connector, error) { return nowhere{}, nil }))
	return w
}

func (w *worker) served() rpctest.Service {
	return rpctest.Service{
		Handler: w.handler, ID: rpctest.SandboxID(),
		Allow: identity.AllowList{identity.Exactly(rpctest.ServiceID("controlplane"))},
		State: w.state,
	}
}

// state is all that a request could change.
func (w *worker) state(t *testing.T) string {
	t.Helper()
	a := w.adapter
	return fmt.Sprintf("%+v initialized %d, streams %d, ended %d", w.Ready(t.Context()), a.initialized.Load(), a.streams.Load(), a.ended.Load())
}

// calls is a served worker with a client that is the control plane.
type calls struct {
	*worker
	wire
	client *rpctest.Client
}

// dial serves a worker and speaks to it with a token for the run of the Stand.
func (w *worker) dial(t *testing.T, wireOf func(*rpctest.Client) wire) *calls {
	t.Helper()
	c := w.stand.Dial(t, w.stand.Serve(t, w.served()), rpctest.SandboxID(), rpctest.ServiceID("controlplane"))
	return (&calls{worker: w, client: c}).as(wireOf, w.token(w.stand.Envelope()))
}

// as speaks with another token.
func (c *calls) as(wireOf func(*rpctest.Client) wire, token string) *calls {
	out := *c
	client := *c.client
	client.Token = token
	out.client, out.wire = &client, wireOf(&client)
	return &out
}

// ctx carries the token for the RPC.
func (c *calls) ctx(t *testing.T) context.Context {
	t.Helper()
	return rpc.WithToken(t.Context(), c.client.Token)
}

// token for the worker itself, in the run of the envelope.
func (w *worker) token(e fence.Envelope) string {
	return w.stand.Minter.Mint(capability.Claims{
		ID: "jti-of-run", Audience: capability.HarnessWorker, Subject: rpctest.SandboxID(),
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
	})
}

func startRequest(e fence.Envelope, message string) *workerv1.StartRunRequest {
	return &workerv1.StartRunRequest{Envelope: e.Proto(), Input: &workerv1.TurnInput{ConversationId: conversation, Message: message}}
}

// resumeRequest answers an interrupt of revision 1.
func resumeRequest(e fence.Envelope, i event.InterruptRequested) *workerv1.ResumeRunRequest {
	body, err := event.InterruptBody(i)
	if err != nil {
		panic(err)
	}
	return &workerv1.ResumeRunRequest{
		Envelope: e.Proto(), ConversationId: conversation, InterruptId: i.InterruptID, InterruptRevision: 1, Interrupt: body,
		Decision: &workerv1.ResumeDecision{Form: []byte(`{"city":"Ulm"}`)},
	}
}

func bindRequest(e fence.Envelope) *workerv1.BindRequest {
	endpoint := func(name string) *workerv1.Endpoint {
		return &workerv1.Endpoint{Address: "https://127.0.0.1:1", SpiffeId: rpctest.ServiceID(name).String()}
	}
	return &workerv1.BindRequest{
		Envelope:       e.Proto(),
		ConversationId: conversation,
		Expected: &workerv1.ExpectedWorker{
			HarnessId: "scripted", AdapterVersion: "1.0.0", WorkerImageDigest: digest, BootNonce: nonce,
		},
		Agent:       &workerv1.Agent{AgentId: "demo", HarnessOptions: []byte(`{}`)},
		Model:       &workerv1.Model{Alias: "main"},
		UserContext: []byte(`{"locale":"de"}`),
		Tools:       []*workerv1.Tool{{ToolId: "fs.read", OfferedName: "fs_read", InputSchema: []byte(`{"type":"object"}`)}},
		Endpoints: &workerv1.Endpoints{
			ToolBroker: endpoint("toolbroker"), ThreadState: endpoint("statefacade"), Memory: endpoint("statefacade"),
			FileBroker: endpoint("filebroker"), ModelProxy: endpoint("modelproxy"),
		},
		Limits: &workerv1.Limits{MaxModelCalls: 8, MaxToolCalls: 8, MaxStateBytes: 1 << 20},
		Tokens: []*workerv1.CallToken{{Audience: "thread-state", Token: "a-token"}},
	}
}

// read gives the events of a run, which were judged a second time.
func (c *calls) read(t *testing.T, req *workerv1.StartRunRequest) []received {
	t.Helper()
	var out []received
	m := event.NewMachine(req.GetEnvelope().GetRunId(), conversation, event.Bounds{})
	must(t, c.start(c.ctx(t), req, func(r received) {
		must(t, m.Accept(r.Event))
		out = append(out, r)
	}))
	if _, ok := m.Terminal(); !ok {
		t.Fatal("the stream ended without a terminal")
	}
	return out
}

func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != want {
		t.Errorf("got %v, want code %q", err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
