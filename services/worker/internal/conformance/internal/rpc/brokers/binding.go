package brokers

import (
	"sync"

	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
)

// Binding is what the brokers keep and have seen of one binding, with places to
// step in. It is safe for concurrent use.
type Binding struct {
	mu sync.Mutex
	// refuse makes a procedure fail with what it answers, if that is an error.
	refuse func(procedure string) error
	// lose cuts the answer of a procedure off, after it was carried out.
	lose func(procedure string) bool
	// acted are the calls that tools saw, as "ID TOOL ARGUMENTS".
	acted    []string
	approved map[string]bool
	slow     chan struct{}
	// snapshots by reference, records by scope and key.
	snapshots map[string][]byte
	records   map[string]*memoryv1.Record
	models    int
}

func newBinding() *Binding {
	return &Binding{
		approved: map[string]bool{}, slow: make(chan struct{}, 64),
		snapshots: map[string][]byte{}, records: map[string]*memoryv1.Record{},
	}
}

// Refuse makes procedures fail; nil ends that.
func (x *Binding) Refuse(f func(procedure string) error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.refuse = f
}

// Lose cuts answers off after what was asked for was done; nil ends that.
func (x *Binding) Lose(f func(procedure string) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lose = f
}

// Approve lets the tool that needs an approval act for these calls.
func (x *Binding) Approve(callIDs ...string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range callIDs {
		x.approved[id] = true
	}
}

// Acted are the calls that tools saw, as "ID TOOL ARGUMENTS", in their order.
func (x *Binding) Acted() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]string(nil), x.acted...)
}

// ModelCalls is how often the model was asked.
func (x *Binding) ModelCalls() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.models
}

// Slow has a value for each call of the slow tool that has begun.
func (x *Binding) Slow() <-chan struct{} { return x.slow }

func (x *Binding) asksModel() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.models++
}

func (x *Binding) refuses(procedure string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.refuse != nil {
		return x.refuse(procedure)
	}
	return nil
}

func (x *Binding) loses(procedure string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lose != nil && x.lose(procedure)
}

func (x *Binding) allows(callID string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.approved[callID]
}

func (x *Binding) acts(call string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.acted = append(x.acted, call)
}

func (x *Binding) keep(ref string, snapshot []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.snapshots[ref] = snapshot
}

func (x *Binding) snapshot(ref string) []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.snapshots[ref]
}
