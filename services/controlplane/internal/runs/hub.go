package runs

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"cofferdam.dev/pkg/binding"
)

// hub tells followers on this replica that a log has grown, and drivers that a
// cancel was decided. It keeps what this replica has committed last of the runs that
// it drives, for followers that keep up; everybody else reads the committed state.
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
	// recent are the last batches that were committed, from first on.
	recent      []json.RawMessage
	recentBytes int
	first       uint64
}

// recentBytes is how much is kept of a run's log; the last batch always is.
const recentBytes = 128 << 10

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

// grew says that the log of a run has so many bytes more, which are not kept here.
func (h *hub) grew(runID string, bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.runs[runID]; l != nil {
		l.recent, l.recentBytes = nil, 0
		l.grew(bytes)
	}
}

// grew wakes those who watch.
func (l *live) grew(bytes int) {
	l.bytes += uint64(max(bytes, 0))
	close(l.changed)
	l.changed = make(chan struct{})
}

// appended says that a batch follows in the log of a run, and is committed.
func (h *hub) appended(runID string, b binding.Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.runs[runID]; l != nil {
		l.keep(b)
		l.grew(b.Bytes())
	}
}

func (l *live) keep(b binding.Batch) {
	if len(l.recent) == 0 || b.First != l.first+uint64(len(l.recent)) {
		l.recent, l.recentBytes, l.first = nil, 0, b.First
	}
	bytes, drop := b.Bytes(), 0
	for ; drop < len(l.recent) && l.recentBytes+bytes > recentBytes; drop++ {
		l.recentBytes -= len(l.recent[drop])
		l.recent[drop] = nil
	}
	l.first += uint64(drop)
	l.recent, l.recentBytes = append(l.recent[drop:], b.Events...), l.recentBytes+bytes
}

// recent gives committed events of a run from a sequence on, at most limit of them.
// ok says that it is known here what stands there: none means that there are none
// yet, as far as this replica has committed.
func (h *hub) recent(runID string, from uint64, limit int) (events []json.RawMessage, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.runs[runID]
	if l == nil || len(l.recent) == 0 || from < l.first || from > l.first+uint64(len(l.recent)) {
		return nil, false
	}
	events = l.recent[from-l.first:]
	return slices.Clone(events[:min(limit, len(events))]), true
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
