package lease_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// A worker learns of tools by bind alone, so another set takes another worker.
func TestOtherToolsTakeAnotherWorker(t *testing.T) {
	w := newWorld(t)
	w.agent.Tools = []string{"fs.*"}
	w.tools.list = twoTools
	first := w.run(t)
	w.acquire(t, first)
	w.end(t, first)

	same := w.run(t)
	w.acquire(t, same)
	if g := w.record(t).Generation; g != 1 {
		t.Fatalf("generation = %d with the same tools, want 1", g)
	}
	w.end(t, same)

	w.tools.list = nil // the broker is away: nobody knows better
	away := w.run(t)
	w.acquire(t, away)
	if g := w.record(t).Generation; g != 1 {
		t.Fatalf("generation = %d while the broker is away, want 1", g)
	}
	w.end(t, away)

	w.tools.list = func(ctx context.Context, p []string) ([]worker.Tool, []string, error) {
		tools, _, err := twoTools(ctx, p)
		return tools[:1], []string{tools[1].ID}, err
	}
	h := w.acquire(t, w.run(t))
	if h.Grant.Envelope().Generation != 2 || len(w.workers.binds()) != 2 {
		t.Errorf("generation %d, %d binds; want a new worker with the tools that there are", h.Grant.Envelope().Generation, len(w.workers.binds()))
	}
}

// Handles are made under the generation that the run has when it is bound: those
// of an earlier one are worth nothing.
func TestHandlesAreMadeForTheGenerationThatIsBound(t *testing.T) {
	w := newWorld(t)
	first := w.run(t)
	h := w.acquire(t, first)
	w.end(t, first)
	w.provider.kill(t, h.Record.Lease.ClaimName)
	req := w.run(t)
	var made []uint32
	req.Handles = func(_ context.Context, e fence.Envelope) ([]string, error) {
		made = append(made, e.Generation)
		return []string{"handle-1"}, nil
	}
	held := w.acquire(t, req)
	if n := len(made); n == 0 || made[n-1] != held.Grant.Envelope().Generation || made[n-1] != 2 {
		t.Errorf("handles were made for %v, bound is %d", made, held.Grant.Envelope().Generation)
	}
}

// The tools are asked for while the sandbox is being claimed, and a claim that fails
// leaves nobody who asks.
func TestToolsAreListedWhileTheClaimWaits(t *testing.T) {
	w := newWorld(t)
	w.agent.Tools = []string{"fs.*"}
	asked := make(chan struct{})
	w.tools.list = func(ctx context.Context, p []string) ([]worker.Tool, []string, error) {
		close(asked)
		return twoTools(ctx, p)
	}
	w.provider.before = func(ctx context.Context, _ int, _ sandbox.Claim) error {
		select {
		case <-asked:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	h := w.acquire(t, w.run(t))
	if h.Grant.Envelope().Generation != 1 || len(w.workers.binds()) != 1 || len(w.workers.binds()[0].Tools) != 2 {
		t.Errorf("generation %d, bound %+v", h.Grant.Envelope().Generation, w.workers.binds())
	}

	other := newWorld(t)
	other.agent.Tools = []string{"fs.*"}
	left := make(chan struct{})
	other.tools.list = func(ctx context.Context, _ []string) ([]worker.Tool, []string, error) {
		<-ctx.Done()
		close(left)
		return nil, nil, ctx.Err()
	}
	other.provider.before = func(context.Context, int, sandbox.Claim) error { return fault.New(fault.SandboxCapacity, "test") }
	if _, err := other.Acquire(t.Context(), other.run(t)); fault.CodeOf(err) != fault.SandboxCapacity {
		t.Errorf("%v, want sandbox_capacity", err)
	}
	select {
	case <-left:
	default:
		t.Error("somebody still asks for tools")
	}
}

// spans notes the names of spans, and what is told beside them.
type spans struct {
	embedded.Tracer

	mu  sync.Mutex
	got []string
}

func (s *spans) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	config := trace.NewSpanStartConfig(opts...)
	for _, a := range config.Attributes() {
		name += " " + string(a.Key) + "=" + a.Value.AsString()
	}
	s.got = append(s.got, name)
	return ctx, noop.Span{}
}

// What a claim takes can be told by its steps, which name the claim and nothing else.
func TestSpansOfAClaim(t *testing.T) {
	s := &spans{}
	w := newWorldWith(t, func(c *lease.Config) { c.Tracer = s })
	h := w.acquire(t, w.run(t))
	of := " cofferdam.sandbox_digest=" + h.Record.Lease.ClaimName
	if want := []string{"sandbox.claim" + of, "sandbox.ready" + of, "sandbox.bind" + of}; !slices.Equal(s.got, want) {
		t.Errorf("got %q, want %q", s.got, want)
	}
}
