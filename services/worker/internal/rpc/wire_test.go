package rpc

import (
	"context"
	"net/http"

	"cofferdam.dev/pkg/fence"
	eventv1 "cofferdam.dev/pkg/gen/harness/event/v1"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/worker/internal/workerclient"
)

// wire is how a client speaks to the worker.
type wire interface {
	ready(ctx context.Context) (*workerv1.ReadyResponse, error)
	bind(ctx context.Context, req *workerv1.BindRequest) (*workerv1.BindResponse, error)
	// start gives the frames to each until there are no more.
	start(ctx context.Context, req *workerv1.StartRunRequest, each func(received)) error
	resume(ctx context.Context, req *workerv1.ResumeRunRequest, each func(received)) error
	cancel(ctx context.Context, req *workerv1.CancelRunRequest) (*workerv1.CancelRunResponse, error)
	// interrupt is nil where none is pending.
	interrupt(ctx context.Context, e fence.Envelope) (*workerv1.InterruptSummary, error)
	shutdown(ctx context.Context, req *workerv1.ShutdownRequest) error
}

// received is one event as it came.
type received = workerclient.Received

// connectWire is the RPC.
type connectWire struct {
	workerv1connect.WorkerServiceClient
}

func newConnectWire(c *rpctest.Client) wire {
	return connectWire{workerv1connect.NewWorkerServiceClient(c.RPC)}
}

func (c connectWire) ready(ctx context.Context) (*workerv1.ReadyResponse, error) {
	return c.Ready(ctx, &workerv1.ReadyRequest{})
}

func (c connectWire) bind(ctx context.Context, req *workerv1.BindRequest) (*workerv1.BindResponse, error) {
	return c.Bind(ctx, req)
}

func (c connectWire) start(ctx context.Context, req *workerv1.StartRunRequest, each func(received)) error {
	stream, err := c.StartRun(ctx, req)
	if err != nil {
		return err
	}
	return workerclient.Frames(each, stream.Close, func() (*eventv1.EventFrame, error) {
		m, err := stream.Receive()
		return m.GetFrame(), err
	})
}

func (c connectWire) resume(ctx context.Context, req *workerv1.ResumeRunRequest, each func(received)) error {
	stream, err := c.ResumeRun(ctx, req)
	if err != nil {
		return err
	}
	return workerclient.Frames(each, stream.Close, func() (*eventv1.EventFrame, error) {
		m, err := stream.Receive()
		return m.GetFrame(), err
	})
}

func (c connectWire) cancel(ctx context.Context, req *workerv1.CancelRunRequest) (*workerv1.CancelRunResponse, error) {
	return c.CancelRun(ctx, req)
}

func (c connectWire) interrupt(ctx context.Context, e fence.Envelope) (*workerv1.InterruptSummary, error) {
	res, err := c.GetInterrupt(ctx, &workerv1.GetInterruptRequest{Envelope: e.Proto()})
	return res.GetInterrupt(), err
}

func (c connectWire) shutdown(ctx context.Context, req *workerv1.ShutdownRequest) error {
	_, err := c.Shutdown(ctx, req)
	return err
}

// httpWire are the protocol's own routes.
type httpWire struct{ workerclient.Routes }

func newHTTPWire(c *rpctest.Client) wire { return httpWire{workerclient.Routes{Client: c}} }

func (h httpWire) ready(ctx context.Context) (*workerv1.ReadyResponse, error) {
	res := &workerv1.ReadyResponse{}
	return res, h.Unary(ctx, http.MethodGet, "ready", nil, res)
}

func (h httpWire) bind(ctx context.Context, req *workerv1.BindRequest) (*workerv1.BindResponse, error) {
	res := &workerv1.BindResponse{}
	return res, h.Unary(ctx, http.MethodPost, "bind", req, res)
}

func (h httpWire) start(ctx context.Context, req *workerv1.StartRunRequest, each func(received)) error {
	return h.Lines(ctx, "runs:start", req, each)
}

func (h httpWire) resume(ctx context.Context, req *workerv1.ResumeRunRequest, each func(received)) error {
	return h.Lines(ctx, "runs:resume", req, each)
}

func (h httpWire) cancel(ctx context.Context, req *workerv1.CancelRunRequest) (*workerv1.CancelRunResponse, error) {
	res := &workerv1.CancelRunResponse{}
	return res, h.Unary(ctx, http.MethodPost, "runs:cancel", req, res)
}

func (h httpWire) interrupt(ctx context.Context, e fence.Envelope) (*workerv1.InterruptSummary, error) {
	return h.Pending(ctx, e)
}

func (h httpWire) shutdown(ctx context.Context, req *workerv1.ShutdownRequest) error {
	return h.Unary(ctx, http.MethodPost, "shutdown", req, &workerv1.ShutdownResponse{})
}

var wires = map[string]func(*rpctest.Client) wire{"connect": newConnectWire, "http": newHTTPWire}
