package bindingtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"cofferdam.dev/pkg/binding"
)

// TestSimulation runs random interleavings of everybody who writes to a record,
// with lost and late requests, and processes that stop for good between two
// instructions, against S1 to S6 and L1 of the contract's model.
func TestSimulation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		plan := plan{
			roles: rapid.SliceOfNDistinct(rapid.IntRange(0, roles-1), 2, roles, rapid.ID).Draw(rt, "roles"),
			tape:  tape(rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(0, 800).Draw(rt, "length")),
			calm:  rapid.Bool().Draw(rt, "calm"),
		}
		var s *sim
		synctest.Test(t, func(*testing.T) { s = plan.run() })
		if err := errors.Join(s.errs...); err != nil {
			rt.Fatalf("%v", err)
		}
	})
}

// TestSimulationReaches checks that the simulation comes to what it is there to
// check; a schedule in which nothing meets would find nothing wrong.
func TestSimulationReaches(t *testing.T) {
	t.Parallel()
	want := []string{
		"end success", "end interrupted", "end cancelling", "end error", "end lost", "resumed", "cleared", "carried over", "chunks", "taken over",
		"side effects none", "side effects possible", "side effects known",
		"row concluded", "row dispatched", "row not_dispatched", "row revoked",
	}
	seen := make(map[string]int)
	for seed := uint64(0); ; seed++ {
		missing := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return seen[w] > 0 })
		if len(missing) == 0 {
			return
		}
		if seed == 4000 {
			t.Fatalf("never seen: %q; seen %v", missing, seen)
		}
		p := plan{tape: tape(seed, 600), calm: seed%2 == 0}
		for i := range roles {
			if seed>>(i%8)&1 == 0 {
				p.roles = append(p.roles, i)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			s := p.run()
			if err := errors.Join(s.errs...); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			for what, n := range s.reached {
				seen[what] += n
			}
		})
	}
}

const roles = 14

// tape is a schedule. Rapid's own slices are short and its numbers small.
func tape(seed uint64, length int) []uint16 {
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a schedule, not a secret
	out := make([]uint16, length)
	for i := range out {
		out[i] = uint16(r.Uint32()) //nolint:gosec // half of it is enough
	}
	return out
}

// plan is one simulation: who takes part, and what happens.
type plan struct {
	roles []int
	tape  []uint16
	// calm loses and delays nothing.
	calm bool
}

func (p plan) processes(s *sim) []func(context.Context) {
	wins := make(map[string]string)
	all := [roles]func(context.Context){
		s.process("starter-1").starter("key-1", 2),
		s.process("starter-2").starter("key-1", 4),
		s.process("starter-3").starter("key-2", 4),
		s.process("keeper-1").keeper(6, true),
		s.process("keeper-2").keeper(6, false),
		s.process("broker-1").broker,
		s.process("broker-2").broker,
		s.process("replacer-1").replacer,
		s.process("replacer-2").replacer,
		s.process("canceller").canceller,
		s.process("clearer").clearer,
		s.process("facade-1").facade(true),
		s.process("resumer-1").resumer("yes", wins),
		s.process("archiver").archiver,
	}
	out := []func(context.Context){s.process("starter-0").starter("key-1", 3)}
	for _, i := range p.roles {
		out = append(out, all[i])
		switch i {
		case 11:
			out = append(out, s.process("facade-2").facade(false))
		case 12:
			out = append(out, s.process("resumer-2").resumer("no", wins))
		}
	}
	return out
}

// run plays the tape, then lets what is left happen without further losses, and
// checks what remains. It runs in a bubble of synctest, in which waiting costs
// nothing and everybody else stands still while one of them moves.
func (p plan) run() *sim {
	s := newSim()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if _, _, err := s.mem.Insert(ctx, binding.Record{ID: simID, Epoch: 1}); err != nil {
		s.violated("%w", err)
		return s
	}
	var wg sync.WaitGroup
	var stop []context.CancelFunc
	for _, run := range p.processes(s) {
		pctx, pcancel := context.WithCancel(ctx)
		stop = append(stop, pcancel)
		wg.Go(func() { run(pctx) })
	}
	for _, n := range p.tape {
		synctest.Wait()
		s.play(n, stop, p.calm)
	}
	s.rest(&wg)
	for _, c := range stop {
		c()
	}
	// One replica lives on, and finds everybody else stopped.
	last := s.process("last").keeper(8, true)
	wg.Go(func() { last(ctx) })
	s.rest(&wg)
	s.check()
	return s
}

// play makes the one step that n stands for.
func (s *sim) play(n uint16, stop []context.CancelFunc, calm bool) {
	kind, which := n>>11, int(n&0x7ff)
	s.mu.Lock()
	waiting, network := s.waiting, s.network
	s.mu.Unlock()
	switch {
	case kind == 31 && which&7 == 0 && !calm: // somebody stops for good
		stop[which>>3%len(stop)]()
	case kind >= 29 && len(network) > 0: // what was sent long ago arrives
		i := which % len(network)
		s.mu.Lock()
		arrive := s.network[i]
		s.network = append(s.network[:i:i], s.network[i+1:]...)
		s.mu.Unlock()
		arrive()
	case kind == 28 || len(waiting) == 0: // time passes
		time.Sleep(time.Duration(which) * 3 * time.Millisecond) //nolint:forbidigo // in a bubble
	default:
		f := deliver
		switch {
		case calm:
		case kind == 25:
			f = loseRequest
		case kind == 26:
			f = loseReply
		case kind == 27:
			f = late
		}
		s.let(which%len(waiting), f)
	}
}

func (s *sim) let(i int, f fate) {
	s.mu.Lock()
	r := s.waiting[i]
	s.waiting = append(s.waiting[:i:i], s.waiting[i+1:]...)
	s.mu.Unlock()
	r.fate <- f
}

// rest lets everybody come to an end, each in its turn.
func (s *sim) rest(wg *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	for range 100_000 {
		synctest.Wait()
		s.mu.Lock()
		waiting, network := len(s.waiting), s.network
		s.network = nil
		s.mu.Unlock()
		for _, arrive := range network {
			arrive()
		}
		select {
		case <-done:
			return
		default:
		}
		if waiting > 0 {
			s.let(0, deliver)
		} else {
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // in a bubble
		}
	}
	s.violated("L1: no end after %s", fmt.Sprint(100_000, " steps"))
}
