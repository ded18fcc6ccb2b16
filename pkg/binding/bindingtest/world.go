package bindingtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

const owner = "replica-a/1"

// world is one back end with a writer on it, and the shortest way to do what a
// control plane does.
type world struct {
	testing.TB
	ctx context.Context //nolint:containedctx // lives as long as the test
	b   binding.Backend
	w   *binding.Writer
}

func newWorld(tb testing.TB, b binding.Backend) *world {
	tb.Helper()
	return &world{TB: tb, ctx: tb.Context(), b: b, w: binding.NewWriter(b, time.Now)}
}

// tapped is the same world seen through a Tap.
func (x *world) tapped(on func(op string) Fate) *world {
	return newWorld(x.TB, Tap{To: x.b, On: on})
}

// once acts before the first call of op.
func once(op string, act func()) func(string) Fate {
	var o sync.Once
	return func(called string) Fate {
		if called == op {
			o.Do(act)
		}
		return Deliver
	}
}

func (x *world) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatalf("unexpected: %v", err)
	}
}

func (x *world) wantFault(err error, code fault.Code) {
	x.Helper()
	if !fault.Is(err, code) {
		x.Fatalf("want %s, got %v", code, err)
	}
}

func (x *world) wantStale(err error) {
	x.Helper()
	x.wantFault(err, fault.StaleLease)
	if !errors.Is(err, binding.ErrFenced) {
		x.Fatalf("want ErrFenced in %v", err)
	}
}

func (x *world) wantIs(err, target error) {
	x.Helper()
	if !errors.Is(err, target) {
		x.Fatalf("want %v, got %v", target, err)
	}
}

func name(id string) func(uint32) string {
	return func(g uint32) string { return binding.ClaimName(id, g) }
}

// bound inserts a record with its first lease: epoch 1, generation 1.
func (x *world) bound() string {
	x.Helper()
	id := "hs_" + rand.Text()
	_, inserted, err := x.b.Insert(x.ctx, binding.Record{ID: id, Epoch: 1, Identity: binding.Identity{AgentID: "demo"}})
	x.must(err)
	if !inserted {
		x.Fatal("a new record was not inserted")
	}
	_, err = x.w.Replace(x.ctx, id, 1, 0, name(id), "default")
	x.must(err)
	_, err = x.w.UpdateLease(x.ctx, id, 1, 1, func(l *binding.Lease) { l.State, l.InstanceUID = binding.LeaseBound, "instance-1" })
	x.must(err)
	return id
}

// params starts the run of a key in the record's epoch.
func (x *world) params(id, key string) binding.StartParams {
	x.Helper()
	r := x.load(id)
	return binding.StartParams{
		BindingID: id, RunID: binding.RunID(id, r.Epoch, key), RequestID: "req-" + key, KeyDigest: "k-" + key, ContentDigest: "c-" + key,
		Epoch: r.Epoch, Deadline: time.Now().Add(time.Hour), Owner: owner,
	}
}

// running starts the run of a key and gives the grant of its worker.
func (x *world) running(id, key string) fence.Grant {
	x.Helper()
	s, err := x.w.Start(x.ctx, x.params(id, key))
	x.must(err)
	if s.Outcome != binding.StartedNow {
		x.Fatalf("start of %s: outcome %d", key, s.Outcome)
	}
	return x.grant(id)
}

// boundRunning is a new binding with a run.
func (x *world) boundRunning() (id string, g fence.Grant) {
	x.Helper()
	id = x.bound()
	return id, x.running(id, "first")
}

// grant is what a guard gives the worker of the active run.
func (x *world) grant(id string) fence.Grant {
	x.Helper()
	c, err := x.w.Committed(x.ctx, id)
	x.must(err)
	g, err := fence.NewGuard(x.w, time.Now).Admit(x.ctx, fence.Envelope{
		BindingID: id, Epoch: c.Epoch, Generation: c.Generation, RunID: c.RunID, RequestID: "req", IdempotencyKey: "key",
		Deadline: time.Now().Add(time.Minute),
	})
	x.must(err)
	return g
}

func (x *world) load(id string) binding.Record {
	x.Helper()
	r, err := x.b.Load(x.ctx, id)
	x.must(err)
	return r
}

// event is one canonical-looking event.
func event(text string) json.RawMessage {
	e, err := encode(map[string]string{"type": text})
	if err != nil {
		panic("bindingtest: " + err.Error())
	}
	return bytes.TrimSpace(e)
}

func batch(first uint64, texts ...string) binding.Batch {
	b := binding.Batch{Nonce: rand.Text(), First: first}
	for _, t := range texts {
		b.Events = append(b.Events, event(t))
	}
	return b
}

// append adds one event at the end of the run's log.
func (x *world) append(g fence.Grant, text string) uint64 {
	x.Helper()
	head, err := x.w.Append(x.ctx, g, owner, batch(x.load(g.Envelope().BindingID).Run.EventHead, text))
	x.must(err)
	return head
}

func cancelled() binding.End {
	return binding.End{Kind: binding.EndCancelling, Reason: "client_request"}
}

// finish ends a run as the replica that drives it does.
func (x *world) finish(g fence.Grant, e binding.End) {
	x.Helper()
	stands, err := x.w.SetEnd(x.ctx, g, e)
	x.must(err)
	x.terminate(g, stands)
}

func (x *world) terminate(g fence.Grant, e binding.End) {
	x.Helper()
	r := x.load(g.Envelope().BindingID)
	effects, err := x.w.Revoke(x.ctx, r, binding.Ending{Epoch: r.Epoch, Generation: r.Generation, Run: r.Run})
	x.must(err)
	_, err = x.w.Terminate(x.ctx, g, owner, batch(r.Run.EventHead, "terminal "+string(e.Kind)+" "+effects), e)
	x.must(err)
}

// closing makes the terminal of a run that is ending.
func closing(run binding.Run, effects string) (binding.Batch, error) {
	return batch(run.EventHead, "closing", "terminal "+string(run.End.Kind)+" "+effects), nil
}

func (x *world) conclude(id, runID string) binding.RunDocument {
	x.Helper()
	d, err := x.w.ConcludeRun(x.ctx, id, runID, closing)
	x.must(err)
	return d
}

// concludeAll concludes whatever is ending.
func (x *world) concludeAll(id string) {
	x.Helper()
	for _, e := range x.load(id).Ending {
		if e.Run != nil {
			x.conclude(id, e.Run.ID)
		} else {
			x.must(x.w.DropLease(x.ctx, id, e.Lease.ClaimName))
		}
	}
	if r := x.load(id); len(r.Ending) != 0 {
		x.Fatalf("left in ending: %+v", r.Ending)
	}
}

// replace replaces the lease of the record as it stands.
func (x *world) replace(id string) binding.Record {
	x.Helper()
	r := x.load(id)
	r, err := x.w.Replace(x.ctx, id, r.Epoch, r.Generation, name(id), "default")
	x.must(err)
	return r
}

func (x *world) clear(id string) binding.Record {
	x.Helper()
	r := x.load(id)
	r, err := x.w.Clear(x.ctx, id, r.Epoch, r.Generation, name(id), "default")
	x.must(err)
	return r
}

// texts reads a whole log in small pages.
func (x *world) texts(id, runID string) (texts []string, ended bool) {
	x.Helper()
	for from := uint64(0); ; {
		p, err := x.w.Events(x.ctx, id, runID, from, 3)
		x.must(err)
		if p.First != from || p.Next != from+uint64(len(p.Events)) {
			x.Fatalf("page from %d: %d to %d with %d events", from, p.First, p.Next, len(p.Events))
		}
		for _, e := range p.Events {
			texts = append(texts, decode[struct{ Type string }](e).Type)
		}
		if len(p.Events) == 0 || p.Ended {
			return texts, p.Ended
		}
		from = p.Next
	}
}

func (x *world) wantLog(id, runID string, ended bool, want ...string) {
	x.Helper()
	got, e := x.texts(id, runID)
	if fmt.Sprint(got) != fmt.Sprint(want) || e != ended {
		x.Fatalf("log is %q (ended %v), want %q (ended %v)", got, e, want, ended)
	}
}

// race runs n calls at once and waits for them.
func race(n int, do func(i int)) {
	var ready, wg sync.WaitGroup
	ready.Add(n)
	for i := range n {
		wg.Go(func() {
			ready.Done()
			ready.Wait()
			do(i)
		})
	}
	wg.Wait()
}

// tally counts from several goroutines.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (t *tally) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = make(map[string]int)
	}
	t.n[what]++
}

func (t *tally) of(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n[what]
}
