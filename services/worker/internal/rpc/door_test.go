package rpc

import (
	"context"
	"fmt"
	"testing"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/waittest"
)

// TestDoor is the table of every operation, on the RPC and on the protocol's own
// route. The capability is about the worker itself, and the control plane shows
// it.
//
// There is no race between admission and write here: what a worker is bound to
// never changes, so nothing can be replaced in between. What a replaced worker
// asks of the brokers is refused there; facadeclient has that test.
func TestDoor(t *testing.T) {
	lifecycle := func(c *capability.Claims) { c.RunID = "" }
	type operation struct {
		procedure, route string
		door             rpctest.Door
		// open makes the worker; nil is one that is bound and idle.
		open func(t *testing.T, s *rpctest.Stand) *worker
		call func(ctx context.Context, w *worker, on wire, e fence.Envelope) error
	}
	for _, o := range []operation{
		{
			procedure: workerv1connect.WorkerServiceReadyProcedure, route: "GET ready",
			door: rpctest.Door{NoFenceReason: "ready changes nothing and tells nothing of a binding"},
			call: func(ctx context.Context, _ *worker, on wire, _ fence.Envelope) error {
				_, err := on.ready(ctx)
				return err
			},
		},
		{
			procedure: workerv1connect.WorkerServiceBindProcedure, route: "POST bind",
			door: rpctest.Door{
				Audience: capability.HarnessWorker, Changes: true,
				NoFenceReason: "an unbound worker has no committed state; a bound one answers binding_conflict",
			},
			open: open,
			call: func(ctx context.Context, _ *worker, on wire, e fence.Envelope) error {
				_, err := on.bind(ctx, bindRequest(e))
				return err
			},
		},
		{
			procedure: workerv1connect.WorkerServiceStartRunProcedure, route: "POST runs:start",
			door: rpctest.Door{Audience: capability.HarnessWorker, Fence: rpc.LeaseFence, Changes: true, Streaming: true},
			call: func(ctx context.Context, _ *worker, on wire, e fence.Envelope) error {
				return on.start(ctx, startRequest(e, "hi"), func(received) {})
			},
		},
		{
			procedure: workerv1connect.WorkerServiceResumeRunProcedure, route: "POST runs:resume",
			door: rpctest.Door{Audience: capability.HarnessWorker, Fence: rpc.LeaseFence, Changes: true, Streaming: true},
			call: func(ctx context.Context, _ *worker, on wire, e fence.Envelope) error {
				return on.resume(ctx, resumeRequest(e, askForm("int-1")), func(received) {})
			},
		},
		{
			procedure: workerv1connect.WorkerServiceCancelRunProcedure, route: "POST runs:cancel",
			door: rpctest.Door{Audience: capability.HarnessWorker, Fence: rpc.LeaseFence, Changes: true, Scope: lifecycle},
			open: running,
			call: func(ctx context.Context, w *worker, on wire, e fence.Envelope) error {
				_, err := on.cancel(ctx, &workerv1.CancelRunRequest{Envelope: e.Proto(), Reason: "client_request"})
				for err == nil && w.adapter.ended.Load() == 0 && ctx.Err() == nil { // the state shows that it stopped
					_, err = on.cancel(ctx, &workerv1.CancelRunRequest{Envelope: e.Proto(), Reason: "client_request"})
				}
				return err
			},
		},
		{
			procedure: workerv1connect.WorkerServiceGetInterruptProcedure, route: "GET interrupt",
			door: rpctest.Door{Audience: capability.HarnessWorker, Fence: rpc.LeaseFence, Scope: lifecycle},
			open: interrupted,
			call: func(ctx context.Context, _ *worker, on wire, e fence.Envelope) error {
				i, err := on.interrupt(ctx, e)
				if err == nil && i.GetInterruptId() != "int-1" {
					return fmt.Errorf("pending is %v", i)
				}
				return err
			},
		},
		{
			procedure: workerv1connect.WorkerServiceShutdownProcedure, route: "POST shutdown",
			door: rpctest.Door{Audience: capability.HarnessWorker, Fence: rpc.LeaseFence, Changes: true, Scope: lifecycle},
			call: func(ctx context.Context, _ *worker, on wire, e fence.Envelope) error {
				return on.shutdown(ctx, &workerv1.ShutdownRequest{Envelope: e.Proto()})
			},
		},
	} {
		for name, on := range wires {
			d := o.door
			d.Procedure = o.procedure
			if name == "http" {
				d.Procedure, d.Streaming = o.route, false // an error has its status there
			}
			d.Caller = rpctest.ServiceID("controlplane")
			if d.Audience != "" {
				d.Subject = rpctest.SandboxID()
			}
			var w *worker
			d.Open = func(t *testing.T, s *rpctest.Stand) rpctest.Service {
				openWorker := o.open
				if openWorker == nil {
					openWorker = bound
				}
				w = openWorker(t, s)
				return w.served()
			}
			d.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error { return o.call(ctx, w, on(c), e) }
			d.Run(t)
		}
	}
}

// running is a bound worker whose run waits.
func running(t *testing.T, s *rpctest.Stand) *worker {
	t.Helper()
	w := bound(t, s)
	w.adapter.play(waits)
	turn, err := turnOf(startRequest(s.Envelope(), "hi"), s.Envelope())
	must(t, err)
	_, err = w.Start(t.Context(), s.Envelope(), turn, nil)
	must(t, err)
	waittest.Until(t, "the run begins", func() bool { return w.adapter.streams.Load() == 1 })
	return w
}

// interrupted is a bound worker whose run asks.
func interrupted(t *testing.T, s *rpctest.Stand) *worker {
	t.Helper()
	w := bound(t, s)
	w.adapter.play(asks(askForm("int-1")))
	turn, err := turnOf(startRequest(s.Envelope(), "hi"), s.Envelope())
	must(t, err)
	_, err = w.Start(t.Context(), s.Envelope(), turn, nil)
	must(t, err)
	waittest.Until(t, "an interrupt is pending", func() bool { _, pending := w.Interrupt(); return pending })
	return w
}

// A lifecycle capability, which names no run, binds nothing, starts nothing and
// resumes nothing.
func TestLifecycleCapabilityIsNotForRuns(t *testing.T) {
	for name, on := range wires {
		t.Run(name, func(t *testing.T) {
			s := rpctest.NewStand(t)
			without := s.Envelope()
			without.RunID = ""

			fresh := open(t, s).dial(t, on).as(on, s.Minter.Mint(claimsOf(without)))
			_, err := fresh.bind(fresh.ctx(t), bindRequest(s.Envelope()))
			wantCode(t, err, fault.CapabilityScope)
			_, err = fresh.bind(fresh.ctx(t), bindRequest(without))
			wantCode(t, err, fault.InvalidRequest)

			c := bound(t, s).dial(t, on)
			c = c.as(on, s.Minter.Mint(claimsOf(without)))
			wantCode(t, c.start(c.ctx(t), startRequest(s.Envelope(), "hi"), func(received) {}), fault.CapabilityScope)
			wantCode(t, c.start(c.ctx(t), startRequest(without, "hi"), func(received) {}), fault.InvalidRequest)
			wantCode(t, c.resume(c.ctx(t), resumeRequest(s.Envelope(), askForm("int-1")), func(received) {}), fault.CapabilityScope)
			_, err = c.cancel(c.ctx(t), &workerv1.CancelRunRequest{Envelope: without.Proto(), Reason: "client_request"})
			wantCode(t, err, fault.InvalidRequest)
			if fresh.Ready(t.Context()).Bound || c.adapter.streams.Load() != 0 {
				t.Error("something was bound or started")
			}
		})
	}
}

func claimsOf(e fence.Envelope) capability.Claims {
	return capability.Claims{
		Audience: capability.HarnessWorker, Subject: rpctest.SandboxID(),
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
	}
}
