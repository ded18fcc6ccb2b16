package bindingtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fence"
)

// sim is a world in which every call to the store is a step, and somebody else
// decides whose step comes next and what becomes of it: the model of the
// contract (examples of the fencing file), with the real code in it.
type sim struct {
	mem     *Memory
	history *history

	mu sync.Mutex
	// waiting are the calls that processes want to make, one a process.
	waiting []*request
	// network holds writes whose sender was told nothing and that have not arrived.
	network []func()
	errs    []error

	// What no process sees: what really happened.
	begun     map[string]int
	terminals map[string]string
	promised  map[string][]binding.Batch
	// acting is whose write is being applied.
	acting *fence.Envelope
	// reached counts what came to pass, so that a test can tell a schedule in
	// which nothing happens.
	reached map[string]int
}

type request struct {
	who, op string
	fate    chan fate
}

// fate is Fate, or late: the caller learns nothing, and the write arrives when
// the schedule says so.
type fate int

const (
	deliver fate = iota
	loseRequest
	loseReply
	late
)

func newSim() *sim {
	s := &sim{
		mem: NewMemory(), history: newHistory(),
		reached: make(map[string]int), begun: make(map[string]int), terminals: make(map[string]string), promised: make(map[string][]binding.Batch),
	}
	s.mem.observe = s.observe
	return s
}

// violated keeps what must not have happened.
func (s *sim) violated(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, fmt.Errorf(format, args...))
}

// turn waits for the schedule.
func (s *sim) turn(ctx context.Context, who, op string) (fate, error) {
	r := &request{who: who, op: op, fate: make(chan fate, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, r)
	// In the order of their names: which of them came first is for the schedule to
	// say, and not for the machine.
	slices.SortFunc(s.waiting, func(a, b *request) int { return strings.Compare(a.who, b.who) })
	s.mu.Unlock()
	select {
	case f := <-r.fate:
		return f, nil
	case <-ctx.Done():
		s.mu.Lock()
		s.waiting = slices.DeleteFunc(s.waiting, func(o *request) bool { return o == r })
		s.mu.Unlock()
		return deliver, ctx.Err()
	}
}

type envelopeKey struct{}

// acts says for which envelope a process writes.
func acts(ctx context.Context, g fence.Grant) context.Context {
	return context.WithValue(ctx, envelopeKey{}, g.Envelope())
}

// observe checks each change of the record as it is made. It is called with the
// store's lock held, by the one process whose turn it is.
func (s *sim) observe(before *binding.Record, after binding.Record) {
	if before == nil {
		return
	}
	if err := s.history.observe(*before, after); err != nil {
		s.violated("%w", err)
	}
	s.scopes(*before, after)
	switch {
	case after.Epoch != before.Epoch:
		s.reached["cleared"]++
	case after.Generation != before.Generation && after.Run != nil:
		s.reached["carried over"]++
	case after.Resumed != nil && before.Resumed == nil:
		s.reached["resumed"]++
	case after.Generation == before.Generation && before.Run != nil && after.Run == nil && !after.EndingRun().Terminal:
		s.reached["taken over"]++
	}
	for _, a := range placed(after) {
		s.visible(a.run)
		if a.entry == nil || !a.entry.Terminal {
			continue
		}
		if was := place(*before, a.run.ID); was == nil || was.entry == nil || !was.entry.Terminal {
			s.terminal(a.run)
		}
	}
}

// scopes is S1: an event, a head or an admission is of the lease and run that
// its sender was admitted for.
func (s *sim) scopes(before, after binding.Record) {
	did := after.Head != before.Head && after.Epoch == before.Epoch
	if before.Run != nil {
		if is := place(after, before.Run.ID); is != nil && (is.run.EventHead != before.Run.EventHead || is.run.Admissions != before.Run.Admissions) {
			did = true
		}
	}
	if !did {
		return
	}
	e := s.acting
	if e == nil || e.Epoch != before.Epoch || e.Generation != before.Generation || before.Run == nil || e.RunID != before.Run.ID {
		s.violated("S1: a write for %+v is taken at epoch %d, generation %d", e, before.Epoch, before.Generation)
	}
}

// visible is S5: chunks and tail together reach the event head.
func (s *sim) visible(run *binding.Run) {
	next := uint64(0)
	for _, c := range s.mem.chunks[run.ID] {
		if c.First == next {
			next = c.Next()
		}
	}
	if next < run.TailFirst() {
		s.violated("S5: run %s has chunks up to %d and a tail from %d", run.ID, next, run.TailFirst())
	}
}

// terminal is S2 and S3 at the moment of the terminal.
func (s *sim) terminal(run *binding.Run) {
	last := run.Tail[len(run.Tail)-1].Events
	words := strings.Fields(decode[struct{ Type string }](last[len(last)-1]).Type)
	if len(words) != 3 || words[0] != "terminal" || words[1] != string(run.End.Kind) {
		s.violated("S3: run %s ends as %v with the terminal %v", run.ID, run.End, words)
		return
	}
	if _, ok := s.terminals[run.ID]; ok {
		s.violated("S3: run %s has two terminals", run.ID)
	}
	s.terminals[run.ID] = words[2]
	if words[2] == binding.SideEffectsNone && s.begun[run.ID] > 0 {
		s.violated("S2: run %s says none after an effect", run.ID)
	}
}

// begin is S2 at the moment of the effect.
func (s *sim) begin(key binding.RowKey) {
	s.mem.mu.Lock()
	defer s.mem.mu.Unlock()
	s.begun[key.RunID]++
	if n := s.begun[key.RunID]; n > 1 {
		s.violated("S2: the effect of run %s happens %d times", key.RunID, n)
	}
	dispatched := false
	for k, row := range s.mem.rows {
		dispatched = dispatched || k.RunID == key.RunID && row.State == binding.RowDispatched
	}
	if !dispatched {
		s.violated("S2: an effect of run %s happens without its row", key.RunID)
	}
	if s.terminals[key.RunID] == binding.SideEffectsNone {
		s.violated("S2: an effect of run %s happens after its terminal said none", key.RunID)
	}
}

var errNetwork = errors.New("sim: no answer")

// store is the store as one process sees it.
type store struct {
	*Memory
	s   *sim
	who string
}

// call makes one step of a process. do applies the call; stage, where it is
// set, prepares it as it is sent and gives what applies it when it arrives.
func call[T any](ctx context.Context, st store, op string, do func() (T, error), stage func() (func(), error)) (T, error) {
	var none T
	f, err := st.s.turn(ctx, st.who, op)
	if err != nil {
		return none, err
	}
	var env *fence.Envelope
	if e, ok := ctx.Value(envelopeKey{}).(fence.Envelope); ok {
		env = &e
	}
	as := func(apply func()) { // only one process runs at a time
		st.s.acting = env
		apply()
		st.s.acting = nil
	}
	switch f {
	case loseRequest:
		return none, errNetwork
	case loseReply:
		as(func() { _, _ = do() })
		return none, errNetwork
	case late:
		arrive, err := func() { _, _ = do() }, error(nil)
		if stage != nil {
			arrive, err = stage()
		}
		if err == nil {
			st.s.mu.Lock()
			st.s.network = append(st.s.network, func() { as(arrive) })
			st.s.mu.Unlock()
		}
		return none, errNetwork
	case deliver:
	}
	var v T
	as(func() { v, err = do() })
	return v, err
}

func (st store) Load(ctx context.Context, id string) (binding.Record, error) {
	return call(ctx, st, "Load", func() (binding.Record, error) { return st.Memory.Load(ctx, id) }, nil)
}

func (st store) Committed(ctx context.Context, id string) (fence.Committed, error) {
	return call(ctx, st, "Committed", func() (fence.Committed, error) { return st.Memory.Committed(ctx, id) }, nil)
}

func (st store) Update(ctx context.Context, id string, f binding.Filter, change func(*binding.Record) error) (binding.Record, error) {
	return call(ctx, st, "Update",
		func() (binding.Record, error) { return st.Memory.Update(context.WithoutCancel(ctx), id, f, change) },
		func() (func(), error) {
			w, err := st.stage(ctx, id, f, change)
			if err != nil {
				return nil, err
			}
			return func() { w.commit() }, nil
		})
}

func (st store) PutChunk(ctx context.Context, c binding.Chunk) (binding.Chunk, error) {
	return call(ctx, st, "PutChunk", func() (binding.Chunk, error) { return st.Memory.PutChunk(context.WithoutCancel(ctx), c) }, nil)
}

func (st store) Chunks(ctx context.Context, runID string, from uint64, limit int) ([]binding.Chunk, error) {
	return call(ctx, st, "Chunks", func() ([]binding.Chunk, error) { return st.Memory.Chunks(ctx, runID, from, limit) }, nil)
}

func (st store) PutRun(ctx context.Context, d binding.RunDocument) error {
	_, err := call(ctx, st, "PutRun", func() (struct{}, error) {
		return struct{}{}, st.Memory.PutRun(context.WithoutCancel(ctx), d)
	}, nil)
	return err
}

func (st store) LoadRun(ctx context.Context, runID string) (binding.RunDocument, error) {
	return call(ctx, st, "LoadRun", func() (binding.RunDocument, error) { return st.Memory.LoadRun(ctx, runID) }, nil)
}

func (st store) InsertRow(ctx context.Context, r binding.Row) (binding.Row, error) {
	return call(ctx, st, "InsertRow", func() (binding.Row, error) { return st.Memory.InsertRow(context.WithoutCancel(ctx), r) }, nil)
}

func (st store) SettleRow(ctx context.Context, k binding.RowKey, nonce string, to binding.RowState, outcome []byte) (bool, error) {
	return call(ctx, st, "SettleRow", func() (bool, error) {
		return st.Memory.SettleRow(context.WithoutCancel(ctx), k, nonce, to, outcome)
	}, nil)
}

func (st store) LoadRow(ctx context.Context, k binding.RowKey) (binding.Row, error) {
	return call(ctx, st, "LoadRow", func() (binding.Row, error) { return st.Memory.LoadRow(ctx, k) }, nil)
}

func (st store) Rows(ctx context.Context, id string, epoch uint32, runID string) ([]binding.Row, error) {
	return call(ctx, st, "Rows", func() ([]binding.Row, error) { return st.Memory.Rows(ctx, id, epoch, runID) }, nil)
}
