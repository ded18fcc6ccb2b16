package bindingtest

import (
	"context"
	"fmt"
	"sync"

	"cofferdam.dev/pkg/binding"
)

// Watch checks every change that passes through to a record against what holds
// for all of them, and reports to tb. It belongs next to the store, behind any
// Tap, where it sees what really happened.
func Watch(tb reporter, to binding.Backend) binding.Backend {
	return &watch{Backend: to, tb: tb, history: newHistory()}
}

type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

type watch struct {
	binding.Backend
	tb      reporter
	history *history
}

func (w *watch) Update(ctx context.Context, bindingID string, f binding.Filter, change func(*binding.Record) error) (binding.Record, error) {
	w.tb.Helper()
	var before binding.Record
	after, err := w.Backend.Update(ctx, bindingID, f, func(r *binding.Record) error {
		before = clone(*r)
		return change(r)
	})
	if err != nil {
		return after, err
	}
	if verr := w.history.observe(before, after); verr != nil {
		w.tb.Errorf("watch: %v", verr)
	}
	return after, err
}

// history is what one record's versions together must not show.
type history struct {
	mu      sync.Mutex
	started map[string]bool
}

func newHistory() *history { return &history{started: make(map[string]bool)} }

// observe checks a step, and that no run id is set as run twice (S4).
func (h *history) observe(before, after binding.Record) error {
	if err := step(before, after); err != nil {
		return err
	}
	if after.Run == nil || place(before, after.Run.ID) != nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.started[after.Run.ID] {
		return fmt.Errorf("run %s starts again", after.Run.ID)
	}
	h.started[after.Run.ID] = true
	return nil
}
