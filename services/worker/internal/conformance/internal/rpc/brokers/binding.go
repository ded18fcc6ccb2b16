package brokers

import (
	"bytes"
	"context"
	"crypto/rand"
	"maps"
	"net/http"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/services/worker/internal/harness"
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
	// asked are the bodies of the model's requests.
	asked [][]byte
	// credentials are those with which the calls were made that tools saw.
	credentials []string
	// traces are the ids of the traces to which requests say that they belong, by
	// procedure; "" is none.
	traces map[string][]string
	files  map[string]file
}

// file is what stands behind a handle.
type file struct {
	harness.File
	content []byte
}

func newBinding() *Binding {
	return &Binding{
		approved: map[string]bool{}, slow: make(chan struct{}, 64),
		snapshots: map[string][]byte{}, records: map[string]*memoryv1.Record{}, traces: map[string][]string{}, files: map[string]file{},
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
	return len(x.asked)
}

// Asked tells which of the model's requests, counted from 0, was the first that
// had a text in it; -1 is none.
func (x *Binding) Asked(text string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.IndexFunc(x.asked, func(body []byte) bool { return bytes.Contains(body, []byte(text)) })
}

// Credentials are those with which the calls were made that tools saw.
func (x *Binding) Credentials() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.credentials)
}

// Traces are the ids of the traces to which requests of the model, or of a
// procedure, said that they belong. "" is none.
func (x *Binding) Traces(procedure string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.traces[procedure])
}

// Model is the procedure of all requests of the model.
const Model = "model"

func (x *Binding) traced(ctx context.Context, procedure string, h http.Header) {
	id := ""
	if c := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(h))); c.HasTraceID() {
		id = c.TraceID().String()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.traces[procedure] = append(x.traces[procedure], id)
}

// Keep keeps a file, for as long as the binding is there.
func (x *Binding) Keep(name, mimeType string, content []byte) harness.File {
	f := harness.File{Handle: "handle_" + rand.Text(), DisplayName: name, MIMEType: mimeType, Size: uint64(len(content))}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.files[f.Handle] = file{f, content}
	return f
}

// Handles of all files that are kept.
func (x *Binding) Handles() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Sorted(maps.Keys(x.files))
}

func (x *Binding) file(handle string) (file, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f, ok := x.files[handle]
	return f, ok
}

// Slow has a value for each call of the slow tool that has begun.
func (x *Binding) Slow() <-chan struct{} { return x.slow }

func (x *Binding) asksModel(body []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = append(x.asked, body)
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

func (x *Binding) acts(call, credential string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.acted, x.credentials = append(x.acted, call), append(x.credentials, credential)
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
