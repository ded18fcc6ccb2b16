package lease_test

import (
	"context"
	"testing"

	"cofferdam.dev/pkg/fence"
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
