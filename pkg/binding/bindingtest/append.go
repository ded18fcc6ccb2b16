package bindingtest

import (
	"errors"
	"fmt"
	"strings"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

func appendInvariants() []Invariant {
	return []Invariant{
		{"T25", "append_in_order", "A batch is taken where the log ends: not before, not after, and none instead of another.", appendInOrder},
		{"T26", "append_once", "The same batch under its nonce is taken once, and answered alike wherever it stands by now.", appendOnce},
		{"T27", "append_nonce_content", "A nonce with another content is another batch, and is not taken for the one that stands.", appendNonceContent},
		{"T28", "append_replaced", "No event of another generation, epoch or run is taken, also when it was admitted before.", appendReplaced},
		{"T29", "append_owner", "Only the owner appends, ends and beats.", appendOwner},
		{"T30", "append_after_end", "After the end is decided the worker's events are not taken.", appendAfterEnd},
		{"T31", "append_bounds", "An empty, malformed or oversized batch is refused before it is stored.", appendBounds},
		{"T32", "tail_bounded", "The tail stays within its bound, and what leaves it stands in chunks: no event vanishes or repeats.", tailBounded},
		{"T33", "chunk_shorter", "Where a chunk stands already, the tail is trimmed to its end only.", chunkShorter},
		{"T34", "append_race", "Of several batches for one place, one is taken.", appendRace},
		{"T35", "read_while_trimmed", "A reader misses nothing and sees nothing twice while the tail is trimmed under it.", readWhileTrimmed},
	}
}

func appendInOrder(x *world) {
	id, g := x.boundRunning()
	run := g.Envelope().RunID
	head, err := x.w.Append(x.ctx, g, owner, batch(0, "a", "b"))
	x.must(err)
	if head != 2 {
		x.Fatalf("head %d", head)
	}
	for _, first := range []uint64{0, 1, 3} {
		_, err := x.w.Append(x.ctx, g, owner, batch(first, "no"))
		x.wantStale(err)
	}
	x.append(g, "<c> & é")
	x.wantLog(id, run, false, "a", "b", "<c> & é")
}

func appendOnce(x *world) {
	id, g := x.boundRunning()
	run := g.Envelope().RunID
	bt := batch(0, "a", "b")
	again := func(where string) {
		x.Helper()
		head, err := x.w.Append(x.ctx, g, owner, bt)
		if err != nil || head != 2 {
			x.Fatalf("%s: head %d, %v", where, head, err)
		}
		_, err = x.w.Append(x.ctx, g, owner, batch(0, "a", "b"))
		if err == nil {
			x.Fatalf("%s: another batch was taken for it", where)
		}
	}
	again("first")
	again("tail")
	x.append(g, "c")
	again("tail, not last")
	x.must(x.w.Archive(x.ctx, id, run))
	last := batch(3, "d")
	_, err := x.w.Append(x.ctx, g, owner, last)
	x.must(err)
	again("chunk")
	_, err = x.w.SetEnd(x.ctx, g, cancelled())
	x.must(err)
	again("end decided")
	if head, err := x.w.Append(x.ctx, g, owner, last); err != nil || head != 4 {
		x.Fatalf("in the tail, end decided: %d, %v", head, err)
	}
	x.terminate(g, cancelled())
	again("ending")
	x.conclude(id, run)
	again("ended")
	x.replace(id)
	again("replaced")
	x.wantLog(id, run, true, "a", "b", "c", "d", "terminal cancelling none")
}

func appendNonceContent(x *world) {
	id, g := x.boundRunning()
	bt := batch(0, "a")
	_, err := x.w.Append(x.ctx, g, owner, bt)
	x.must(err)
	longer := bt
	longer.Events = append(longer.Events[:1:1], event("b"))
	_, err = x.w.Append(x.ctx, g, owner, longer)
	x.wantStale(err)
	other := bt
	other.Events = batch(0, "z").Events
	_, err = x.w.Append(x.ctx, g, owner, other)
	x.wantStale(err)
	x.wantLog(id, g.Envelope().RunID, false, "a")
}

// replacements are what can happen to a binding between the moment a request is
// admitted and the moment it writes.
func (x *world) replacements(do func(what string, id string, g fence.Grant)) {
	x.Helper()
	for what, act := range map[string]func(id string, g fence.Grant){
		"replaced, run carried over": func(id string, _ fence.Grant) { x.replace(id) },
		"cleared":                    func(id string, _ fence.Grant) { x.clear(id) },
		"another run": func(id string, g fence.Grant) {
			x.finish(g, cancelled())
			x.conclude(id, g.Envelope().RunID)
			x.running(id, "another")
		},
		"taken over": func(id string, g fence.Grant) { x.must(x.w.TakeOver(x.ctx, id, g.Envelope().RunID, owner, 0)) },
		"no run any more": func(id string, g fence.Grant) {
			x.finish(g, cancelled())
			x.conclude(id, g.Envelope().RunID)
		},
	} {
		id, g := x.boundRunning()
		act(id, g)
		do(what, id, g)
	}
}

func appendReplaced(x *world) {
	x.replacements(func(what, id string, g fence.Grant) {
		x.Helper()
		if _, err := x.w.Append(x.ctx, g, owner, batch(0, "late")); !fault.Is(err, fault.StaleLease) {
			x.Fatalf("%s: %v", what, err)
		}
		if r := x.load(id); r.Run != nil && r.Run.EventHead != 0 {
			x.Fatalf("%s: an event was taken: %+v", what, r.Run)
		}
	})
	// A run with an event is not carried over; its late batch meets the run in ending.
	id, g := x.boundRunning()
	x.append(g, "a")
	x.replace(id)
	_, err := x.w.Append(x.ctx, g, owner, batch(1, "late"))
	x.wantStale(err)
	// A grant that no guard made writes nothing at all.
	_, err = x.w.Append(x.ctx, fence.Grant{}, owner, batch(1, "late"))
	x.wantFault(err, fault.Internal)
}

func appendOwner(x *world) {
	id, g := x.boundRunning()
	_, err := x.w.Append(x.ctx, g, "replica-b/1", batch(0, "a"))
	x.wantStale(err)
	x.wantStale(x.w.Beat(x.ctx, g, "replica-b/1"))
	_, err = x.w.SetEnd(x.ctx, g, cancelled()) // anybody may cancel
	x.must(err)
	_, err = x.w.Terminate(x.ctx, g, "replica-b/1", batch(0, "t"), cancelled())
	x.wantStale(err)
	if r := x.load(id); r.Run == nil || r.Run.EventHead != 0 || r.Run.OwnerBeat != 0 {
		x.Fatalf("record %+v", r)
	}
}

func appendAfterEnd(x *world) {
	id, g := x.boundRunning()
	x.append(g, "a")
	_, err := x.w.SetEnd(x.ctx, g, cancelled())
	x.must(err)
	_, err = x.w.Append(x.ctx, g, owner, batch(1, "late"))
	x.wantIs(err, binding.ErrEnded)
	x.wantFault(err, fault.Cancelled)
	x.terminate(g, cancelled())
	x.wantLog(id, g.Envelope().RunID, true, "a", "terminal cancelling none")
}

func appendBounds(x *world) {
	id, g := x.boundRunning()
	big := batch(0, strings.Repeat("x", binding.MaxBatchBytes))
	many := batch(0, make([]string, binding.MaxBatchEvents+1)...)
	broken := batch(0, "a")
	broken.Events[0] = []byte(`{"type":`)
	noNonce := batch(0, "a")
	noNonce.Nonce = ""
	for what, c := range map[string]struct {
		b    binding.Batch
		code fault.Code
	}{
		"empty": {batch(0), fault.InvalidRequest}, "no nonce": {noNonce, fault.InvalidRequest}, "many": {many, fault.InvalidRequest},
		"broken": {broken, fault.InvalidRequest}, "big": {big, fault.RequestTooLarge},
	} {
		if _, err := x.w.Append(x.ctx, g, owner, c.b); !fault.Is(err, c.code) {
			x.Fatalf("%s: %v", what, err)
		}
	}
	if n := x.load(id).Run.EventHead; n != 0 {
		x.Fatalf("event head %d", n)
	}
	spaced := batch(0, "a")
	spaced.Events[0] = []byte(` { "type" : "a" } `)
	for range 2 { // is the same batch again, although it was stored compact
		_, err := x.w.Append(x.ctx, g, owner, spaced)
		x.must(err)
	}
}

func tailBounded(x *world) {
	id, g := x.boundRunning()
	run := g.Envelope().RunID
	var want []string
	add := func(size int) {
		x.Helper()
		text := fmt.Sprintf("%d-%s", len(want), strings.Repeat("x", size))
		want = append(want, text)
		x.append(g, text)
	}
	for range 12 {
		add(20 << 10)
	}
	add(200 << 10) // stands alone
	add(100)
	r := x.load(id)
	if n := len(r.Run.Tail); n != 1 || r.Run.TailFirst() != 13 {
		x.Fatalf("the tail has %d batches from %d", n, r.Run.TailFirst())
	}
	chunks, err := x.b.Chunks(x.ctx, run, 0, 64)
	x.must(err)
	if len(chunks) < 4 {
		x.Fatalf("%d chunks", len(chunks))
	}
	x.wantLog(id, run, false, want...)
	x.finish(g, cancelled())
	x.wantLog(id, run, true, append(want, "terminal cancelling none")...)
	x.conclude(id, run)
	x.wantLog(id, run, true, append(want, "terminal cancelling none")...)
}

func chunkShorter(x *world) {
	id, g := x.boundRunning()
	run := g.Envelope().RunID
	x.append(g, "a")
	// Another replica has put its chunk and stopped before it trimmed.
	_, err := x.b.PutChunk(x.ctx, binding.Chunk{RunID: run, First: 0, Batches: x.load(id).Run.Tail})
	x.must(err)
	x.append(g, "b")
	x.append(g, "c")
	x.must(x.w.Archive(x.ctx, id, run))
	x.wantLog(id, run, false, "a", "b", "c")
	x.append(g, "d")
	x.wantLog(id, run, false, "a", "b", "c", "d")
	// A chunk that has other events than the log trims nothing.
	id, g = x.boundRunning()
	run = g.Envelope().RunID
	x.append(g, "a")
	_, err = x.b.PutChunk(x.ctx, binding.Chunk{RunID: run, First: 0, Batches: []binding.Batch{batch(0, "forged")}})
	x.must(err)
	x.wantFault(x.w.Archive(x.ctx, id, run), fault.Internal)
	if n := len(x.load(id).Run.Tail); n != 1 {
		x.Fatalf("the tail has %d batches", n)
	}
}

func appendRace(x *world) {
	id, g := x.boundRunning()
	var n tally
	race(8, func(i int) {
		for seq := range uint64(6) {
			_, err := x.w.Append(x.ctx, g, owner, batch(seq, fmt.Sprintf("%d by %d", seq, i)))
			switch {
			case err == nil:
				n.add(fmt.Sprint(seq))
			case !errors.Is(err, binding.ErrFenced):
				x.Errorf("append: %v", err)
			}
		}
	})
	texts, _ := x.texts(id, g.Envelope().RunID)
	for seq, text := range texts {
		if n.of(fmt.Sprint(seq)) != 1 || !strings.HasPrefix(text, fmt.Sprintf("%d by ", seq)) {
			x.Fatalf("place %d: %d winners, %q", seq, n.of(fmt.Sprint(seq)), text)
		}
	}
	if len(texts) == 0 {
		x.Fatal("nobody won")
	}
}

func readWhileTrimmed(x *world) {
	id, g := x.boundRunning()
	run := g.Envelope().RunID
	const n = 30
	race(2, func(i int) {
		if i == 0 {
			for seq := range uint64(n) {
				if _, err := x.w.Append(x.ctx, g, owner, batch(seq, fmt.Sprint(seq))); err != nil {
					x.Errorf("append: %v", err)
					return
				}
				if seq%4 == 3 {
					if err := x.w.Archive(x.ctx, id, run); err != nil {
						x.Errorf("archive: %v", err)
						return
					}
				}
			}
			return
		}
		for next := uint64(0); next < n; {
			p, err := x.w.Events(x.ctx, id, run, next, 5)
			if err != nil {
				x.Errorf("read from %d: %v", next, err)
				return
			}
			for k, e := range p.Events {
				if got, want := decode[struct{ Type string }](e).Type, fmt.Sprint(next+uint64(k)); got != want {
					x.Errorf("event %s, want %s", got, want)
					return
				}
			}
			if p.Ended {
				x.Error("an open log is ended")
				return
			}
			if x.Failed() {
				return
			}
			next = p.Next
		}
	})
}
