package rpc

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/worker/internal/harness"
)

// inRun gives a client of another run of the binding, and its envelope.
func (c *calls) inRun(on func(*rpctest.Client) wire, runID string) (*calls, fence.Envelope) {
	e := c.stand.Envelope()
	e.RunID = runID
	return c.as(on, c.token(e)), e
}

// resumes gives the events of a resume, which were judged a second time.
func (c *calls) resumes(t *testing.T, req *workerv1.ResumeRunRequest, carried ...event.Carried) []received {
	t.Helper()
	var out []received
	m := event.NewMachine(req.GetEnvelope().GetRunId(), conversation, event.Bounds{}, carried...)
	must(t, c.resume(c.ctx(t), req, func(r received) {
		must(t, m.Accept(r.Event))
		out = append(out, r)
	}))
	if _, ok := m.Terminal(); !ok {
		t.Fatal("the stream ended without a terminal")
	}
	return out
}

func (c *calls) wantPending(t *testing.T, want *workerv1.InterruptSummary) {
	t.Helper()
	got, err := c.interrupt(c.ctx(t), c.stand.Envelope())
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("pending is %v, %v; want %v", got, err, want)
	}
}

// The whole way of an interrupt: asked, pending, answered once, and then the same
// answer again and another one.
func TestInterruptAndResume(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := bound(t, rpctest.NewStand(t)).dial(t, on)
		c.wantPending(t, nil)
		c.adapter.play(asks(askForm("int-1")))
		got := c.read(t, startRequest(c.stand.Envelope(), "hi"))
		if types := typesOf(got); types != "run.started interrupt.requested run.interrupted" {
			t.Fatalf("events: %s", types)
		}
		c.wantPending(t, &workerv1.InterruptSummary{InterruptId: "int-1", InterruptType: "form_input", Revision: 1})

		c.adapter.play(says("hello"))
		next, env := c.inRun(on, "run-2")
		request := func(form string) *workerv1.ResumeRunRequest {
			r := resumeRequest(env, askForm("int-1"))
			r.Decision.Form = []byte(form)
			r.Tokens = []*workerv1.CallToken{{Audience: "thread-state", Token: "fresh"}}
			return r
		}
		other := request(`{"city":"Ulm"}`)
		other.InterruptRevision = 2
		wantCode(t, next.resume(next.ctx(t), other, func(received) {}), fault.InterruptConflict)

		got = next.resumes(t, request(`{"city":"Ulm"}`))
		if types := typesOf(got); types != "run.started text.started text.delta text.finished run.error" {
			t.Errorf("events: %s", types)
		}
		if r := got[0]; r.CapabilityJTI != "jti-of-bind" || r.BootNonce != nonce || r.Envelope.RunID != "run-2" {
			t.Errorf("%+v", r)
		}
		c.wantPending(t, nil)
		var again []received
		must(t, next.resume(next.ctx(t), request(`{ "city": "Ulm" }`), func(r received) { again = append(again, r) }))
		if len(again) != 1 || again[0].Event.Sequence != got[4].Event.Sequence || again[0].Event.Data != got[4].Event.Data {
			t.Errorf("the same again gave %+v", again)
		}
		wantCode(t, next.resume(next.ctx(t), request(`{"city":"Bonn"}`), func(received) { t.Error("an event came") }), fault.InterruptConflict)
		if len(c.adapter.decisions) != 1 || string(c.adapter.decisions[0].Form) != `{"city":"Ulm"}` {
			t.Errorf("the harness got %+v", c.adapter.decisions)
		}
	})
}

// While it runs, the same decision is already_running; and a resume goes with the
// stream that carries it, as a start does.
func TestResumeThatRuns(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := bound(t, rpctest.NewStand(t)).dial(t, on)
		c.adapter.play(waits)
		ctx, gone := context.WithCancel(c.ctx(t))
		defer gone()
		done := make(chan error, 1)
		go func() { done <- c.resume(ctx, resumeRequest(c.stand.Envelope(), askForm("int-1")), func(received) {}) }()
		waittest.Until(t, "the run begins", func() bool { return c.adapter.streams.Load() == 1 })
		wantCode(t, c.resume(c.ctx(t), resumeRequest(c.stand.Envelope(), askForm("int-1")), func(received) {}), fault.AlreadyRunning)
		gone()
		if err := <-done; err == nil {
			t.Error("the stream ended cleanly")
		}
		waittest.Until(t, "the harness ends", func() bool { return c.adapter.ended.Load() == 1 })
		var end event.Data
		waittest.Until(t, "the run has its terminal", func() bool {
			return c.resume(c.ctx(t), resumeRequest(c.stand.Envelope(), askForm("int-1")), func(r received) { end = r.Event.Data }) == nil
		})
		if want := (event.RunCancelled{Reason: event.CancelledByDisconnect, SideEffectStatus: event.SideEffectsNone}); end != want {
			t.Errorf("the run ended by %#v", end)
		}
	})
}

// Calls that the interrupt names, and those that delegate, count as started.
func TestResumeCarriesCalls(t *testing.T) {
	ask := event.InterruptRequested{
		InterruptID: "int-1", InterruptType: event.InterruptToolApproval, AgentID: "agent",
		ToolApprovals: []event.ToolApproval{{ToolCallID: "c1", ToolName: "bash", ToolArgs: `{"cmd":"ls"}`, AllowedDecisions: []event.Decision{event.DecisionApprove, event.DecisionReject}}},
	}
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := bound(t, rpctest.NewStand(t)).dial(t, on)
		c.adapter.play(func(ctx context.Context, emit harness.Emitter) error {
			for _, id := range []string{"c1", "parent"} {
				if err := emit.Emit(ctx, event.Draft{Data: event.ToolFinished{ToolCallID: id, Result: `1`}}); err != nil {
					return err
				}
			}
			return fault.New(fault.ModelFailed, "test")
		})
		req := resumeRequest(c.stand.Envelope(), ask)
		req.CarriedCalls = []string{"parent"}
		req.Decision = &workerv1.ResumeDecision{Tools: []*workerv1.ToolDecision{{ToolCallId: "c1", Decision: "approve"}}}
		got := c.resumes(t, req, event.Carried{ToolCallID: "parent"}, event.Carried{ToolCallID: "c1", Decision: event.DecisionApprove})
		if types := typesOf(got); types != "run.started tool.finished tool.finished run.error" {
			t.Errorf("events: %s", types)
		}
		if e, ok := got[3].Event.Data.(event.RunError); !ok || e.SideEffectStatus != event.SideEffectsKnown || e.Code != string(fault.ModelFailed) {
			t.Errorf("the run ended by %+v", got[3].Event.Data)
		}
	})
}

func TestResumeIsRefused(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := bound(t, rpctest.NewStand(t)).dial(t, on)
		for name, x := range map[string]struct {
			change func(*workerv1.ResumeRunRequest)
			code   fault.Code
		}{
			"no decision":           {func(r *workerv1.ResumeRunRequest) { r.Decision = nil }, fault.InvalidRequest},
			"an empty one":          {func(r *workerv1.ResumeRunRequest) { r.Decision = &workerv1.ResumeDecision{} }, fault.InvalidRequest},
			"two":                   {func(r *workerv1.ResumeRunRequest) { r.Decision.Dismiss = true }, fault.InvalidRequest},
			"no interrupt":          {func(r *workerv1.ResumeRunRequest) { r.Interrupt = nil }, fault.InvalidRequest},
			"an interrupt of none":  {func(r *workerv1.ResumeRunRequest) { r.Interrupt = []byte(`{}`) }, fault.InvalidRequest},
			"another id":            {func(r *workerv1.ResumeRunRequest) { r.InterruptId = "int-2" }, fault.InvalidRequest},
			"an id that is none":    {func(r *workerv1.ResumeRunRequest) { r.InterruptId = "int 1" }, fault.InvalidRequest},
			"another conversation":  {func(r *workerv1.ResumeRunRequest) { r.ConversationId = "conversation-2" }, fault.InvalidRequest},
			"a form of keys twice":  {func(r *workerv1.ResumeRunRequest) { r.Decision.Form = []byte(`{"city":"a","city":"b"}`) }, fault.InvalidRequest},
			"a form of other cases": {func(r *workerv1.ResumeRunRequest) { r.Decision.Form = []byte(`{"city":"a","City":"b"}`) }, fault.InvalidRequest},
			"a field missing":       {func(r *workerv1.ResumeRunRequest) { r.Decision.Form = []byte(`{}`) }, fault.InvalidRequest},
			"a form too long": {func(r *workerv1.ResumeRunRequest) {
				r.Decision.Form = []byte(`{"city":"` + strings.Repeat("x", 64<<10) + `"}`)
			}, fault.InvalidRequest},
			"an odd decision": {func(r *workerv1.ResumeRunRequest) {
				r.Decision = &workerv1.ResumeDecision{Tools: []*workerv1.ToolDecision{{ToolCallId: "c", Decision: "maybe"}}}
			}, fault.InvalidRequest},
			"too many decisions": {func(r *workerv1.ResumeRunRequest) {
				r.Decision = &workerv1.ResumeDecision{Tools: make([]*workerv1.ToolDecision, 65)}
			}, fault.InvalidRequest},
			"too many carried calls": {func(r *workerv1.ResumeRunRequest) { r.CarriedCalls = make([]string, 65) }, fault.InvalidRequest},
			"too large":              {func(r *workerv1.ResumeRunRequest) { r.Interrupt = make([]byte, rpc.DefaultMaxBytes) }, fault.RequestTooLarge},
		} {
			req := resumeRequest(c.stand.Envelope(), askForm("int-1"))
			x.change(req)
			if err := c.resume(c.ctx(t), req, func(received) {}); !fault.Is(err, x.code) {
				t.Errorf("%s: %v, want %s", name, err, x.code)
			}
		}
		if c.adapter.streams.Load() != 0 {
			t.Error("the harness ran")
		}
	})
}

// A cancel is answered once the harness has stopped, and says so.
func TestCancelWaits(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := running(t, rpctest.NewStand(t)).dial(t, on)
		req := &workerv1.CancelRunRequest{Envelope: c.stand.Envelope().Proto(), Reason: "client_request"}
		got, err := c.cancel(c.ctx(t), req)
		must(t, err)
		if !got.GetActive() || !got.GetStopped() || c.adapter.ended.Load() != 1 {
			t.Errorf("it says %v", got)
		}
		got, err = c.cancel(c.ctx(t), req)
		must(t, err)
		if got.GetActive() || !got.GetStopped() {
			t.Errorf("after the run it says %v", got)
		}
	})
}

// One that does not stop is answered when the request's time is over.
func TestCancelOfAHarnessThatGoesOn(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		w := bound(t, rpctest.NewStand(t))
		release := make(chan struct{})
		w.adapter.play(func(context.Context, harness.Emitter) error { <-release; return nil })
		turn, err := turnOf(startRequest(w.stand.Envelope(), "hi"), w.stand.Envelope())
		must(t, err)
		_, err = w.Start(t.Context(), w.stand.Envelope(), turn, nil)
		must(t, err)
		defer close(release)
		c := w.dial(t, on)
		env := c.stand.Envelope()
		began := time.Now()
		got, err := c.cancel(c.ctx(t), &workerv1.CancelRunRequest{Envelope: env.Proto(), Reason: "client_request"})
		must(t, err)
		if !got.GetActive() || got.GetStopped() || time.Since(began) > 10*time.Second {
			t.Errorf("it says %v after %v", got, time.Since(began))
		}
	})
}
