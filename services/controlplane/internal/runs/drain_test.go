package runs_test

import (
	"context"
	"sync/atomic"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// A run that is committed while its replica stops driving is not called lost.
func TestARunThatIsStartedInTheLastMoment(t *testing.T) {
	store := &rpctest.Backend{Backend: bindingtest.NewMemory()}
	s := runstest.Make(t, func(context.Context, *runstest.Play) error { return nil }, runstest.Options{Backend: store})
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Runs.Run(ctx) }()
	follow(t, s, start(t, s, "the first run makes the binding").RunID)
	var stopped atomic.Bool
	store.AfterWrite(func(err error) error {
		if rec, lerr := store.List(t.Context(), "", 10, true); lerr == nil && len(rec) == 1 && rec[0].Run != nil && stopped.CompareAndSwap(false, true) {
			end()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		return err
	})
	r, err := s.Runs.Start(t.Context(), runstest.Caller(), runs.StartRequest{AgentID: "demo", ConversationID: "c1", Message: "hi"})
	if err != nil {
		t.Fatal(err)
	}
	rec := s.Record(t, r.BindingID)
	if rec.Run == nil || rec.Run.ID != r.RunID || rec.Run.End.Kind != binding.EndCancelling || rec.Run.End.Reason != string(event.CancelledByShutdown) {
		t.Errorf("the run stands as %+v", rec.Run)
	}
	if err := s.Provider.Close(); err != nil {
		t.Error(err)
	}
}

// slowReads is a store whose next admission after held was set takes until the caller
// gives up.
type slowReads struct {
	binding.Backend
	held atomic.Pointer[func()]
}

func (s *slowReads) Committed(ctx context.Context, id string) (fence.Committed, error) {
	if f := s.held.Swap(nil); f != nil {
		(*f)()
		<-ctx.Done()
		return fence.Committed{}, ctx.Err()
	}
	return s.Backend.Committed(ctx, id)
}

// The same in the moment after: it is launched, and the service ends while it asks to
// be admitted.
func TestARunThatIsLaunchedInTheLastMoment(t *testing.T) {
	reads := &slowReads{Backend: bindingtest.NewMemory()}
	store := &rpctest.Backend{Backend: reads}
	s := runstest.Make(t, func(context.Context, *runstest.Play) error { return nil }, runstest.Options{Backend: store})
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Runs.Run(ctx) }()
	first := start(t, s, "the first run makes the binding")
	follow(t, s, first.RunID)
	stop := func() { end() }
	store.AfterWrite(func(err error) error {
		if rec, lerr := store.List(t.Context(), "", 10, true); lerr == nil && len(rec) == 1 && rec[0].Run != nil && rec[0].Run.ID != first.RunID {
			store.AfterWrite(nil)
			reads.held.Store(&stop)
		}
		return err
	})
	r := start(t, s, "hi")
	if err := <-done; err != nil {
		t.Error(err)
	}
	rec := s.Record(t, r.BindingID)
	if rec.Run == nil || rec.Run.ID != r.RunID || rec.Run.End.Kind != binding.EndCancelling || rec.Run.End.Reason != string(event.CancelledByShutdown) {
		t.Errorf("the run stands as %+v", rec.Run)
	}
	if err := s.Provider.Close(); err != nil {
		t.Error(err)
	}
}
