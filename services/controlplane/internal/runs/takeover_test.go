package runs_test

import (
	"context"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// A run whose owner died after it was cancelled is not said to be cancelled while
// its harness goes on, and nobody meets that harness again.
func TestACancelWhoseOwnerIsGone(t *testing.T) {
	stopped, running := make(chan struct{}), make(chan struct{})
	s := runstest.Make(t, func(ctx context.Context, p *runstest.Play) error {
		if err := p.Emit(ctx, started()); err != nil {
			return err
		}
		close(running)
		<-ctx.Done()
		close(stopped)
		return ctx.Err()
	}, runstest.Options{Owner: "replica-1"})
	ctx, die := context.WithCancel(t.Context())
	r := start(t, s, "hi")
	<-running
	rec := s.Record(t, r.BindingID)
	g, err := s.Guard.Admit(ctx, fence.Envelope{
		BindingID: rec.ID, Epoch: rec.Epoch, Generation: rec.Generation, RunID: r.RunID,
		RequestID: "req", IdempotencyKey: "cancel", Deadline: rec.Run.Deadline,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Writer.SetEnd(ctx, g, binding.End{Kind: binding.EndCancelling, Reason: string(event.CancelledByClient)}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the run is taken over", func() bool { // its owner beats still, and may between the two
		now, err := s.Writer.Backend().Load(ctx, rec.ID)
		return err == nil && (now.Run == nil || s.Writer.TakeOver(ctx, rec.ID, r.RunID, now.Run.Owner, now.Run.OwnerBeat) == nil)
	})
	done := make(chan error, 1)
	go func() { done <- s.Runs.Run(ctx) }()
	d := document(t, s, r.RunID)
	if alive, err := s.Provider.Alive(t.Context(), rec.Lease.ClaimName, rec.Lease.InstanceUID); alive || err != nil {
		t.Errorf("the run is cancelled, and its sandbox goes on: %v, %v", alive, err)
	}
	select {
	case <-stopped: // the harness ends with its sandbox
	case <-time.After(patience):
		t.Error("the run is cancelled, and its harness goes on")
	}
	if d.End.Kind != binding.EndCancelling {
		t.Errorf("end is %+v", d.End)
	}
	if now := s.Record(t, r.BindingID); now.Generation == rec.Generation {
		t.Error("the next run meets the same worker")
	}
	die()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.Provider.Close(); err != nil {
		t.Error(err)
	}
}
