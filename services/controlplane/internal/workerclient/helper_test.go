package workerclient_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	eventv1 "cofferdam.dev/pkg/gen/harness/event/v1"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
	"cofferdam.dev/services/controlplane/internal/workerclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds a wait for something that must come.
const patience = time.Minute

// fake is a worker whose answers a test chooses.
type fake struct {
	ready  func(context.Context) (*workerv1.ReadyResponse, error)
	bind   func(context.Context, *workerv1.BindRequest) (*workerv1.BindResponse, error)
	start  func(context.Context, *workerv1.StartRunRequest, workerv1connect.WorkerServiceStartRunServerStream) error
	cancel func(context.Context, *workerv1.CancelRunRequest) (*workerv1.CancelRunResponse, error)
}

var errUnused = fault.New(fault.NotImplemented, "test")

func (f *fake) Ready(ctx context.Context, _ *workerv1.ReadyRequest) (*workerv1.ReadyResponse, error) {
	return f.ready(ctx)
}

func (f *fake) Bind(ctx context.Context, r *workerv1.BindRequest) (*workerv1.BindResponse, error) {
	return f.bind(ctx, r)
}

func (f *fake) StartRun(ctx context.Context, r *workerv1.StartRunRequest, out workerv1connect.WorkerServiceStartRunServerStream) error {
	return f.start(ctx, r, out)
}

func (f *fake) CancelRun(ctx context.Context, r *workerv1.CancelRunRequest) (*workerv1.CancelRunResponse, error) {
	return f.cancel(ctx, r)
}

func (*fake) ResumeRun(context.Context, *workerv1.ResumeRunRequest, workerv1connect.WorkerServiceResumeRunServerStream) error {
	return errUnused
}

func (*fake) GetInterrupt(context.Context, *workerv1.GetInterruptRequest) (*workerv1.GetInterruptResponse, error) {
	return nil, errUnused
}

func (*fake) Shutdown(context.Context, *workerv1.ShutdownRequest) (*workerv1.ShutdownResponse, error) {
	return nil, errUnused
}

// handler serves the fake behind the door that a worker has.
func (f *fake) handler(t *testing.T, s *rpctest.Stand) http.Handler {
	t.Helper()
	policy := rpc.Policy{Callers: identity.AllowList{identity.Exactly(rpctest.ServiceID("controlplane"))}, MaxBytes: 8 << 20}
	policies := map[string]rpc.Policy{}
	for _, name := range []string{"Ready", "Bind", "StartRun", "ResumeRun", "CancelRun", "GetInterrupt", "Shutdown"} {
		policies["/"+workerv1connect.WorkerServiceName+"/"+name] = policy
	}
	server := rpc.NewServer(s.RPC(), policies)
	workerv1connect.RegisterWorkerServiceHandler(server.Connect(), f)
	h, err := server.Handler()
	must(t, err)
	return h
}

// stand has one worker and its client.
type stand struct {
	*rpctest.Stand
	client   worker.Client
	instance sandbox.Instance
}

// open serves a handler as the sandbox of the lease.
func open(t *testing.T, h func(*rpctest.Stand) http.Handler) *stand {
	t.Helper()
	s := &stand{Stand: rpctest.NewStand(t)}
	controlplane := rpctest.ServiceID("controlplane")
	address := s.Serve(t, rpctest.Service{
		Handler: h(s.Stand), ID: rpctest.SandboxID(), Allow: identity.AllowList{identity.Exactly(controlplane)},
	})
	s.instance = sandbox.Instance{UID: rpctest.Instance, ID: rpctest.SandboxID(), Address: address}
	s.client = s.dial(t, s.instance)
	return s
}

func openFake(t *testing.T, f *fake) *stand {
	t.Helper()
	return open(t, func(s *rpctest.Stand) http.Handler { return f.handler(t, s) })
}

func (s *stand) dial(t *testing.T, in sandbox.Instance) worker.Client {
	t.Helper()
	c, err := workerclient.NewDialer(s.Source(t, rpctest.ServiceID("controlplane")), s.Telemetry).Dial(in)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// bounded is a context that ends before the test does.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// start begins a run.
func (s *stand) start(t *testing.T) worker.Stream {
	t.Helper()
	stream, err := s.client.Start(bounded(t), "token", s.turn())
	must(t, err)
	t.Cleanup(func() { _ = stream.Close() })
	return stream
}

func (s *stand) turn() worker.Turn {
	return worker.Turn{Envelope: s.Envelope(), ConversationID: "conversation-1", Message: "hello"}
}

// frame is a right one, with events of the run.
func frame(t *testing.T, env fence.Envelope, data ...event.Data) *eventv1.EventFrame {
	t.Helper()
	f := &eventv1.EventFrame{Envelope: env.Proto(), CapabilityJti: "jti-1", BootNonce: "nonce-1"}
	for i, d := range data {
		p, err := eventproto.ToProto(event.Event{
			RunID: env.RunID, ConversationID: "conversation-1", Sequence: uint64(i), Timestamp: time.Unix(1_787_000_000, 0).UTC(), Data: d,
		})
		must(t, err)
		f.Events = append(f.Events, p)
	}
	return f
}

func authorization(ctx context.Context) string {
	info, ok := connect.CallInfoForServerContext(ctx)
	if !ok {
		return "no call"
	}
	return info.RequestHeader().Get("Authorization")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
