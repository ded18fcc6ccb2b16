//go:build benchtools

// Package workertest has a worker for benchmarks: it makes events as fast or as
// slowly as it is told, over the real wire.
package workertest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	"cofferdam.dev/pkg/fence"
	eventv1 "cofferdam.dev/pkg/gen/harness/event/v1"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

const (
	nonce = "nonce"
	// Token is the one that the worker was bound by, and its id.
	Token = "token"
	// DeltaBytes of each event, the moment at which it was made among them.
	DeltaBytes = 64
)

// Order is what a benchmark's worker is to do, as the message of a run.
type Order struct {
	Events int `json:"events"`
	// Every is the pause between two events, in microseconds; 0 is none.
	Every int `json:"every"`
}

// Worker plays all workers, at one address.
type Worker struct {
	workerv1connect.UnimplementedWorkerServiceHandler

	// Commit does what the state facade does at the end of a turn; nil where nobody
	// commits what this worker says.
	Commit func(ctx context.Context, env fence.Envelope, last uint64) error
}

// Ready implements the RPC of this name.
func (*Worker) Ready(context.Context, *workerv1.ReadyRequest) (*workerv1.ReadyResponse, error) {
	return &workerv1.ReadyResponse{
		Ready: true, ProtocolVersions: []uint32{1}, HarnessId: runstest.HarnessID, AdapterVersion: runstest.AdapterVersion,
		WorkerImageDigest: runstest.Digest, BootNonce: nonce,
	}, nil
}

// Bind implements the RPC of this name.
func (*Worker) Bind(_ context.Context, r *workerv1.BindRequest) (*workerv1.BindResponse, error) {
	e := r.GetEnvelope()
	return &workerv1.BindResponse{BindingId: e.GetBindingId(), Epoch: e.GetEpoch(), LeaseGeneration: e.GetLeaseGeneration(), BootNonce: nonce}, nil
}

// StartRun makes the events of the order. Like a worker it sends what is there when
// the stream is free.
func (w *Worker) StartRun(ctx context.Context, r *workerv1.StartRunRequest, out workerv1connect.WorkerServiceStartRunServerStream) error {
	env, err := fence.FromProto(r.GetEnvelope())
	if err != nil {
		return err
	}
	var o Order
	if err := json.Unmarshal([]byte(r.GetInput().GetMessage()), &o); err != nil {
		return err
	}
	m := event.NewMachine(env.RunID, r.GetInput().GetConversationId(), event.DefaultBounds())
	send := func(data ...event.Data) error {
		f := &eventv1.EventFrame{Envelope: r.GetEnvelope(), CapabilityJti: Token, BootNonce: nonce}
		for _, d := range data {
			e := m.Stamp(event.Draft{Data: d}, time.Now())
			if err := m.Accept(e); err != nil {
				return err
			}
			p, err := eventproto.ToProto(e)
			if err != nil {
				return err
			}
			f.Events = append(f.Events, p)
		}
		return out.Send(&workerv1.StartRunResponse{Frame: f})
	}
	if err := send(event.RunStarted{HarnessID: runstest.HarnessID, AdapterVersion: runstest.AdapterVersion}, event.TextStarted{MessageID: "m"}); err != nil {
		return err
	}
	if err := o.deltas(ctx, send); err != nil {
		return err
	}
	if err := send(event.TextFinished{MessageID: "m"}); err != nil {
		return err
	}
	if w.Commit != nil {
		if err := w.Commit(ctx, env, m.Next()-1); err != nil {
			return err
		}
	}
	return send(event.RunFinished{StopReason: "stop"})
}

func (o Order) deltas(ctx context.Context, send func(...event.Data) error) error {
	delta := func() event.Data {
		at := strconv.FormatInt(time.Now().UnixNano(), 10)
		return event.TextDelta{MessageID: "m", Delta: at + strings.Repeat(" ", DeltaBytes-len(at))}
	}
	if o.Every == 0 {
		for left := o.Events; left > 0; left -= event.MaxFrameEvents {
			frame := make([]event.Data, 0, event.MaxFrameEvents)
			for range min(left, event.MaxFrameEvents) {
				frame = append(frame, delta())
			}
			if err := send(frame...); err != nil {
				return err
			}
		}
		return nil
	}
	tick := time.NewTicker(time.Duration(o.Every) * time.Microsecond)
	defer tick.Stop()
	for range o.Events {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := send(delta()); err != nil {
			return err
		}
	}
	return nil
}

// Serve serves the worker to the control plane until the end of the test, and gives
// its address.
func (w *Worker) Serve(t *testing.T, s *rpctest.Stand) string {
	t.Helper()
	allow := identity.AllowList{identity.Exactly(rpctest.ServiceID("controlplane"))}
	server := rpc.NewServer(s.RPC(), rpctest.Policies(map[string]rpc.Policy{
		workerv1connect.WorkerServiceReadyProcedure: {Callers: allow}, workerv1connect.WorkerServiceBindProcedure: {Callers: allow},
		workerv1connect.WorkerServiceStartRunProcedure: {Callers: allow},
	}, workerv1.File_harness_worker_v1_worker_proto))
	workerv1connect.RegisterWorkerServiceHandler(server.Connect(), w)
	h, err := server.Handler()
	if err != nil {
		t.Fatal(err)
	}
	return s.Serve(t, rpctest.Service{Handler: h, ID: rpctest.SandboxID(), Allow: allow})
}

// Read carries an order out on a connection to a worker, without a control plane, and
// gives each delta.
func Read(ctx context.Context, c *connect.Client, env fence.Envelope, message string, each func(delta string)) error {
	s, err := workerv1connect.NewWorkerServiceClient(c).StartRun(ctx, &workerv1.StartRunRequest{
		Envelope: env.Proto(), Input: &workerv1.TurnInput{ConversationId: "c", Message: message},
	})
	if err != nil {
		return err
	}
	for {
		m, err := s.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range m.GetFrame().GetEvents() {
			if d := e.GetTextDelta(); d != nil {
				each(d.GetDelta())
			}
		}
	}
}
