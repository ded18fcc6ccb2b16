package bindingtest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"cofferdam.dev/pkg/binding"
)

func recordInvariants() []Invariant {
	return []Invariant{
		{"T01", "record_inserted_once", "Of several inserts of one record one is made, and all see the one that stands.", recordInsertedOnce},
		{"T02", "record_round_trip", "A record comes back as it was written, each event byte for byte.", recordRoundTrip},
		{"T03", "update_filter", "A write happens only where each of epoch, generation and run is what it names.", updateFilter},
		{"T04", "update_refused", "A change that refuses leaves the record alone, and its error comes back unchanged.", updateRefused},
		{"T05", "update_atomic", "No write of a record is lost under another one.", updateAtomic},
		{"T06", "update_one_winner", "Of the writers that name one generation, one moves it.", updateOneWinner},
		{"T07", "committed_agrees", "What a guard reads is what the record says.", committedAgrees},
		{"T08", "find_run", "A run is found by its id while it is in the record, active or ending, and not after.", findRun},
		{"T09", "list", "Records are listed once each, in order, in pages; busy ones alone when asked.", list},
		{"T10", "context", "A call whose context has ended does nothing and says so.", contextEnds},
	}
}

func recordInsertedOnce(x *world) {
	id := "hs_" + rand.Text()
	var n tally
	race(16, func(i int) {
		r, inserted, err := x.b.Insert(x.ctx, binding.Record{ID: id, Epoch: 1, Identity: binding.Identity{AgentID: fmt.Sprint(i)}})
		if err != nil {
			x.Errorf("insert: %v", err)
		}
		if inserted {
			n.add("inserted")
			if r.Identity.AgentID != fmt.Sprint(i) {
				x.Errorf("the one who inserted got %q back", r.Identity.AgentID)
			}
		}
		n.add("agent " + r.Identity.AgentID)
	})
	if n.of("inserted") != 1 || n.of("agent "+x.load(id).Identity.AgentID) != 16 {
		x.Fatalf("inserts: %v", n.n)
	}
}

func fullRecord() binding.Record {
	at := time.Date(2026, 11, 2, 3, 4, 5, 678901234, time.UTC)
	events := []json.RawMessage{
		json.RawMessage(`{"z":1,"a":"<b> & 'c' \u003c","t":"  é 日本 "}`),
		json.RawMessage(`{"big":123456789012345678901234567890,"float":1.0e+2}`),
	}
	run := func(id string) *binding.Run {
		return &binding.Run{
			ID: id, RequestID: "req", KeyDigest: "k", ContentDigest: "c", StartedAt: at, Deadline: at.Add(time.Hour), Nonce: "n",
			Owner: "o", OwnerBeat: 7, EventHead: 12, Tail: []binding.Batch{{Nonce: "b", First: 10, Events: events}},
			Admitted: []string{"e1", "e2"}, Admissions: 9, End: binding.End{Kind: binding.EndCancelling, Reason: "disconnect"},
		}
	}
	lease := func(n string) *binding.Lease {
		return &binding.Lease{ClaimName: n, ClaimUID: "u", SandboxUID: "s", InstanceUID: "i", BootNonce: "bn", Endpoint: "https://[::1]:1", ImageDigest: "sha256:0", Profile: "p", State: binding.LeaseReady, ExpiresAt: at}
	}
	return binding.Record{
		ID: "hs_" + rand.Text(), Epoch: 3, Generation: 4294967295, Revision: 1 << 40, UpdatedAt: at,
		Identity: binding.Identity{Environment: "e", Subject: "s", Organization: "o", AgentID: "a", AgentVersion: 2, ConversationID: "c", HarnessID: "h", AdapterVersion: "v", ContractVersion: 1},
		Lease:    lease("l1"), Run: run("run_" + rand.Text()),
		Ending:    []binding.Ending{{Epoch: 2, Generation: 3, Run: run("run_" + rand.Text()), Terminal: true}, {Epoch: 2, Generation: 3, Lease: lease("l0")}},
		Head:      binding.Head{Revision: 5, Codec: "c", CodecVersion: 6, SnapshotRef: "r", SHA256: "h", RunID: "x", IdempotencyDigest: "d"},
		Interrupt: &binding.Interrupt{ID: "i", Revision: 5, Hash: "h", RunID: "x"},
		Resumed:   &binding.Resumed{InterruptID: "j", Revision: 4, DecisionHash: "d", RunID: "y"},
	}
}

func recordRoundTrip(x *world) {
	want := fullRecord()
	_, _, err := x.b.Insert(x.ctx, want)
	x.must(err)
	got := x.load(want.ID)
	if !reflect.DeepEqual(got, want) {
		x.Fatalf("got  %+v\nwant %+v", got, want)
	}
	up, err := x.b.Update(x.ctx, want.ID, binding.Filter{}, func(r *binding.Record) error {
		if !reflect.DeepEqual(*r, want) {
			return fmt.Errorf("change sees %+v", *r)
		}
		r.Run.OwnerBeat++
		return nil
	})
	x.must(err)
	want.Run.OwnerBeat++
	if got := x.load(want.ID); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(up, want) {
		x.Fatalf("after an update: got %+v, answered %+v, want %+v", got, up, want)
	}
}

func updateFilter(x *world) {
	id, g := x.boundRunning()
	e := g.Envelope()
	idle := x.bound()
	u32, str := func(n uint32) *uint32 { return &n }, func(s string) *string { return &s }
	for _, c := range []struct {
		what string
		id   string
		f    binding.Filter
		want error
	}{
		{"nothing named", id, binding.Filter{}, nil},
		{"all match", id, binding.Filter{Epoch: u32(1), Generation: u32(1), RunID: str(e.RunID)}, nil},
		{"lower epoch", id, binding.Filter{Epoch: u32(0)}, binding.ErrFenced},
		{"higher epoch", id, binding.Filter{Epoch: u32(2), Generation: u32(1), RunID: str(e.RunID)}, binding.ErrFenced},
		{"lower generation", id, binding.Filter{Epoch: u32(1), Generation: u32(0), RunID: str(e.RunID)}, binding.ErrFenced},
		{"higher generation", id, binding.Filter{Generation: u32(2)}, binding.ErrFenced},
		{"other run", id, binding.Filter{Epoch: u32(1), Generation: u32(1), RunID: str("run_other")}, binding.ErrFenced},
		{"no run asked", id, binding.Filter{RunID: str("")}, binding.ErrFenced},
		{"no run there", idle, binding.Filter{RunID: str("")}, nil},
		{"a run asked where none is", idle, binding.Filter{RunID: str(e.RunID)}, binding.ErrFenced},
		{"unknown binding", "hs_unknown", binding.Filter{}, binding.ErrNotFound},
	} {
		called := false
		_, err := x.b.Update(x.ctx, c.id, c.f, func(r *binding.Record) error {
			called = true
			r.UpdatedAt = time.Now()
			return nil
		})
		if !errors.Is(err, c.want) || c.want == nil && err != nil {
			x.Fatalf("%s: got %v, want %v", c.what, err, c.want)
		}
		if c.want != nil && called {
			x.Fatalf("%s: the change was asked", c.what)
		}
	}
}

func updateRefused(x *world) {
	id, _ := x.boundRunning()
	before := x.load(id)
	refusal := errors.New("no")
	_, err := x.b.Update(x.ctx, id, binding.Filter{}, func(r *binding.Record) error {
		r.Generation, r.Run.Owner, r.Lease.ClaimName = 99, "thief", "other"
		return refusal
	})
	if err != refusal { //nolint:errorlint // unchanged means the very same
		x.Fatalf("got %v", err)
	}
	if after := x.load(id); !reflect.DeepEqual(before, after) {
		x.Fatalf("a refused change left %+v", after)
	}
}

func updateAtomic(x *world) {
	id, _ := x.boundRunning()
	const writers, each = 8, 10
	race(writers, func(int) {
		for range each {
			_, err := x.b.Update(x.ctx, id, binding.Filter{}, func(r *binding.Record) error {
				r.Run.OwnerBeat++
				return nil
			})
			if err != nil {
				x.Errorf("update: %v", err)
			}
		}
	})
	if n := x.load(id).Run.OwnerBeat; n != writers*each {
		x.Fatalf("%d of %d writes are there", n, writers*each)
	}
}

func updateOneWinner(x *world) {
	id := x.bound()
	var n tally
	race(16, func(int) {
		for g := uint32(1); g <= 8; g++ {
			_, err := x.b.Update(x.ctx, id, binding.Filter{Generation: &g}, func(r *binding.Record) error {
				r.Ending = append(r.Ending, binding.Ending{Epoch: r.Epoch, Generation: r.Generation, Lease: r.Lease})
				r.Generation++
				r.Lease = &binding.Lease{ClaimName: binding.ClaimName(id, r.Generation)}
				return nil
			})
			switch {
			case err == nil:
				n.add(fmt.Sprint(g))
			case !errors.Is(err, binding.ErrFenced):
				x.Errorf("update: %v", err)
			}
		}
	})
	for g := 1; g <= 8; g++ {
		if n.of(fmt.Sprint(g)) != 1 {
			x.Errorf("generation %d has %d winners", g, n.of(fmt.Sprint(g)))
		}
	}
}

func committedAgrees(x *world) {
	check := func(id string) {
		x.Helper()
		got, err := x.b.Committed(x.ctx, id)
		x.must(err)
		want := x.load(id).Committed()
		if !got.RunDeadline.Equal(want.RunDeadline) {
			x.Fatalf("deadline %v, want %v", got.RunDeadline, want.RunDeadline)
		}
		got.RunDeadline = want.RunDeadline
		if got != want {
			x.Fatalf("got %+v, want %+v", got, want)
		}
	}
	full := fullRecord()
	_, _, err := x.b.Insert(x.ctx, full)
	x.must(err)
	check(full.ID)
	id := x.bound()
	check(id)
	g := x.running(id, "k")
	check(id)
	x.finish(g, cancelled())
	check(id)
	x.replace(id)
	check(id)
	x.clear(id)
	check(id)
	_, err = x.b.Committed(x.ctx, "hs_unknown")
	x.wantIs(err, binding.ErrNotFound)
}

func findRun(x *world) {
	x.boundRunning() // another one
	id, g := x.boundRunning()
	runID := g.Envelope().RunID
	found := func() {
		x.Helper()
		got, err := x.b.FindRun(x.ctx, runID)
		x.must(err)
		if got != id {
			x.Fatalf("found %q, want %q", got, id)
		}
	}
	found()
	x.finish(g, cancelled())
	found()
	x.conclude(id, runID)
	_, err := x.b.FindRun(x.ctx, runID)
	x.wantIs(err, binding.ErrNotFound)
}

func list(x *world) {
	idle, running := x.bound(), ""
	running, g := x.boundRunning()
	ending, ge := x.boundRunning()
	x.finish(ge, cancelled())
	all := func(busy bool) (ids []string) {
		for after := ""; ; after = ids[len(ids)-1] {
			page, err := x.b.List(x.ctx, after, 2, busy)
			x.must(err)
			if len(page) == 0 {
				return ids
			}
			if len(page) > 2 {
				x.Fatalf("a page of %d", len(page))
			}
			for _, r := range page {
				ids = append(ids, r.ID)
			}
		}
	}
	if ids := all(false); !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) ||
		!slices.Contains(ids, idle) || !slices.Contains(ids, running) || !slices.Contains(ids, ending) {
		x.Fatalf("all: %v", ids)
	}
	if ids := all(true); slices.Contains(ids, idle) || !slices.Contains(ids, running) || !slices.Contains(ids, ending) {
		x.Fatalf("busy: %v", ids)
	}
	x.finish(g, cancelled())
	x.conclude(running, g.Envelope().RunID)
	if ids := all(true); slices.Contains(ids, running) {
		x.Fatalf("a concluded binding is busy: %v", ids)
	}
}

func contextEnds(x *world) {
	id := x.bound()
	ctx, cancel := context.WithCancel(x.ctx)
	cancel()
	_, err := x.b.Update(ctx, id, binding.Filter{}, func(r *binding.Record) error {
		r.Generation = 50
		return nil
	})
	x.wantIs(err, context.Canceled)
	_, err = x.b.Load(ctx, id)
	x.wantIs(err, context.Canceled)
	key := binding.RowKey{BindingID: id, Epoch: 1, RunID: "r", Key: "k"}
	_, err = x.b.InsertRow(ctx, binding.Row{RowKey: key, Nonce: "n", State: binding.RowDispatched})
	x.wantIs(err, context.Canceled)
	_, err = x.b.LoadRow(x.ctx, key)
	x.wantIs(err, binding.ErrNotFound)
	if g := x.load(id).Generation; g != 1 {
		x.Fatalf("generation %d", g)
	}
}
