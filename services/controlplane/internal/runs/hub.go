package runs

import (
	"context"
	"sync"
)

// hub tells followers on this replica that a log has grown, and drivers that a
// cancel was decided. It carries no data: everybody reads the committed state.
type hub struct {
	mu   sync.Mutex
	runs map[string]*live
	// starting counts the starts of a run whose reply has not come yet: it may be
	// committed already, and is not anybody's to take over.
	starting map[string]int
}

// live is what is known of a run that this replica drives.
type live struct {
	changed chan struct{}
	cancel  context.CancelFunc
	bytes   uint64
}

func newHub() *hub { return &hub{runs: map[string]*live{}, starting: map[string]int{}} }

// expect says that this replica is starting a run; the returned function says
// that the start is answered and, if it was ours, driven.
func (h *hub) expect(runID string) (answered func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starting[runID]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.starting[runID]--; h.starting[runID] == 0 {
			delete(h.starting, runID)
		}
	}
}

// drive registers a run; cancel wakes its driver. It returns false when the run
// is driven here already.
func (h *hub) drive(runID string, cancel context.CancelFunc) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, twice := h.runs[runID]; twice {
		return false
	}
	h.runs[runID] = &live{changed: make(chan struct{}), cancel: cancel}
	return true
}

// done forgets a run and wakes its followers for the last time.
func (h *hub) done(runID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.runs[runID]; l != nil {
		close(l.changed)
		delete(h.runs, runID)
	}
}

// grew says that the log of a run has so many bytes more.
func (h *hub) grew(runID string, bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.runs[runID]; l != nil {
		l.bytes += uint64(max(bytes, 0))
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// wake tells the driver of a run, if it is here, to look at the record.
func (h *hub) wake(runID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.runs[runID]; l != nil {
		l.cancel()
	}
}

// watch gives a channel that closes at the next change, and the bytes that were
// committed so far. The channel is nil when the run is not driven here.
func (h *hub) watch(runID string) (changed <-chan struct{}, bytes uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.runs[runID]; l != nil {
		return l.changed, l.bytes
	}
	return nil, 0
}

// drives reports whether this replica drives the run, or is about to.
func (h *hub) drives(runID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs[runID] != nil || h.starting[runID] > 0
}
