package runs_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/mongostore"
	"cofferdam.dev/pkg/binding/sqlitestore"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/agents/agentstore/agentstoretest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// What a run can have come to, as the table below has it.
const (
	finished  = "run.finished"
	cancelled = "run.cancelled client_request"
	lost      = "run.error control_plane_lost"
	evicted   = "run.error sandbox_evicted"
	// nothing is a run that there never was.
	nothing = ""
)

// killing is a replica that dies at one write of the contract's fencing file.
type killing struct {
	// write is its number there, and at its name in runstest.
	write int
	at    string
	// play is what the replica is asked for, by others than the test.
	play func(*dying)
	// found, where it is not nil, is what the replica finds when it begins.
	found func(*dying)
	// quiet keeps the replica from beating, by which it would find out about a cancel
	// at any moment.
	quiet bool
	// before and after are what comes of it where the write did not happen, and where
	// it did and its reply was lost.
	before, after aftermath
}

// aftermath is what the record, the log and the ledger say once another replica has
// seen to it.
type aftermath struct {
	ends    string
	effects string
	// acts is how often the one effect of the run happened.
	acts int64
	// rows are the states of its rows in the ledger.
	rows []binding.RowState
	// head is the revision of the committed head, epoch and generation those of the
	// record.
	head              uint64
	epoch, generation uint32
	// interrupted says that a question is pending.
	interrupted bool
}

// killings are all writes that a replica, or a broker or facade beside it, makes for
// a run.
func killings() []killing {
	none := func(ends string) aftermath { return aftermath{ends: ends, effects: "none", generation: 2} }
	done := aftermath{ends: finished, effects: "known", acts: 1, rows: []binding.RowState{binding.RowConcluded}, head: 1, generation: 1}
	known := aftermath{ends: lost, effects: "known", acts: 1, rows: []binding.RowState{binding.RowConcluded}, generation: 2}
	headed := done
	headed.generation = 2 // the worker of a run that lost its replica is not met again
	revoked := aftermath{ends: lost, effects: "none", rows: []binding.RowState{binding.RowRevoked}, generation: 2}
	gone := none(evicted)
	cleared := aftermath{ends: cancelled, effects: "none", epoch: 1, generation: 2}
	uncleared := none(cancelled)
	concluding := func(before, after aftermath, writes ...string) (out []killing) {
		for _, w := range writes {
			out = append(out, killing{write: 8, at: w, play: (*dying).turn, before: before, after: after})
		}
		return out
	}
	asked := aftermath{ends: nothing, head: 1, generation: 1, interrupted: true}
	return append([]killing{
		{write: 1, at: "start", play: (*dying).turn, before: aftermath{ends: nothing, generation: 1}, after: none(lost)},
		{write: 2, at: "events", play: (*dying).turn, before: none(lost), after: none(lost)},
		{write: 3, at: "end", play: (*dying).cancel, before: none(lost), after: none(cancelled)},
		{write: 3, at: "terminate", play: (*dying).turn, before: headed, after: done},
		{write: 4, at: "admit", play: (*dying).turn, before: none(lost), after: revoked},
		{write: 4, at: "InsertRow", play: (*dying).turn, before: revoked, after: aftermath{ends: lost, effects: "possible", rows: []binding.RowState{binding.RowDispatched}, generation: 2}},
		{write: 4, at: "SettleRow", play: (*dying).turn, before: aftermath{ends: lost, effects: "possible", acts: 1, rows: []binding.RowState{binding.RowDispatched}, generation: 2}, after: known},
		{write: 4, at: "release", play: (*dying).turn, before: known, after: known},
		{write: 5, at: "head", play: (*dying).turn, before: known, after: headed},
		{write: 6, at: "first lease", play: (*dying).turn, before: aftermath{ends: nothing}, after: aftermath{ends: nothing, generation: 1}},
		{write: 6, at: "lease ready", play: (*dying).turn, before: none(lost), after: none(lost)},
		{write: 6, at: "lease bound", play: (*dying).turn, before: none(lost), after: none(lost)},
		{write: 6, at: "replace", play: (*dying).evict, before: gone, after: gone},
		{write: 7, at: "clear", play: (*dying).clear, quiet: true, before: uncleared, after: cleared},
		{write: 8, at: "drop lease", play: (*dying).evict, before: gone, after: gone},
		{write: 8, at: "revoke", found: (*dying).adopt, before: revoked, after: revoked},
		{write: 8, at: "put terminal", found: (*dying).adopt, before: revoked, after: revoked},
		{write: 9, at: "resume", play: (*dying).resume, before: asked, after: aftermath{ends: lost, effects: "none", head: 1, generation: 2}},
		{write: 10, at: "beat", play: (*dying).hang, before: none(lost), after: none(lost)},
		{write: 10, at: "take over", found: (*dying).adopt, before: revoked, after: revoked},
	}, concluding(done, done, "PutChunk", "trim", "PutRun", "drop run")...)
}

// A replica that is killed at a write, before it or after it with the reply lost,
// leaves what the contract's fencing file says, and another one brings it to its end.
func TestAReplicaThatIsKilledAtAWrite(t *testing.T) {
	t.Parallel()
	backends := map[string]func(*testing.T) binding.Backend{
		"sqlite": func(t *testing.T) binding.Backend {
			t.Helper()
			s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "records.db"))
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	}
	server := mongodbstoretest.Server(t)
	backends["mongodb"] = func(t *testing.T) binding.Backend {
		t.Helper()
		s, err := mongostore.Open(t.Context(), mongodbstoretest.Open(t, server))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, k := range killings() {
		for _, after := range []bool{false, true} {
			moment, want := "before", k.before
			if after {
				moment, want = "after", k.after
			}
			for name, open := range backends {
				// The server of the tests is slow: without a real one the harder half is
				// played on it, in which something was written that nobody knows of.
				if name == "mongodb" && !after && !mongodbstoretest.External() {
					continue
				}
				t.Run(k.at+"/"+moment+"/"+name, func(t *testing.T) {
					t.Parallel()
					k.run(t, open(t), after, want)
				})
			}
		}
	}
}

// All ten writes of the fencing file are among those at which a replica is killed.
func TestEachOfTheTenWritesIsKilledAt(t *testing.T) {
	seen := map[int]bool{}
	for _, k := range killings() {
		seen[k.write] = true
	}
	for n := 1; n <= 10; n++ {
		if !seen[n] {
			t.Errorf("no replica is killed at write %d", n)
		}
	}
}

// dying is a replica that is about to die, and what it is asked for.
type dying struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // the test's, for what runs beside it
	s    *runstest.Stack
	life *runstest.Life
	acts *atomic.Int64
	// raw reads and writes the store beside the replica.
	raw *binding.Writer
	// run is the one that all is about, and again asks another replica for it once
	// more.
	run   string
	again func(*testing.T, *runstest.Stack) runs.Started
}

// key of every start.
const key = "key-1"

func request() runs.StartRequest {
	return runs.StartRequest{AgentID: "demo", ConversationID: "c1", Message: "hi", IdempotencyKey: key}
}

func (k killing) run(t *testing.T, store binding.Backend, after bool, want aftermath) {
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*patience)
	t.Cleanup(cancel)
	var acts atomic.Int64
	agents := &agentstoretest.Memory{}
	d := &dying{t: t, ctx: ctx, life: runstest.NewLife(k.at, after), acts: &acts, raw: binding.NewWriter(store, time.Now)}
	d.s = runstest.Make(t, nil, runstest.Options{Backend: store, Agents: agents, Owner: "cp-1", Life: d.life, Change: func(c *runs.Config) {
		if k.quiet {
			c.BeatEvery = time.Hour
		}
	}})
	d.s.Workers.Play(d.effect())
	id := bindingID(t)
	d.run = binding.RunID(id, 0, key)
	d.again = func(t *testing.T, s *runstest.Stack) runs.Started {
		t.Helper()
		r, err := s.Runs.Start(t.Context(), runstest.Caller(), request())
		if err != nil {
			t.Fatalf("the same start again: %v", err)
		}
		return r
	}
	if k.found != nil {
		k.found(d)
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // Run does not return where it came to the end of its life
		defer close(ended)
		_ = d.s.Runs.Run(running)
	}()
	t.Cleanup(func() { end(); <-ended })

	played := make(chan struct{})
	go func() {
		defer close(played)
		if k.play != nil {
			k.play(d)
		}
	}()
	select {
	case <-d.life.Died():
	case <-ctx.Done():
		t.Fatal("the replica never came to that write")
	}
	<-played
	seen := logOf(t, d.raw, id, d.run)

	// Another replica sees to it, on the same sandboxes.
	s := runstest.New(t, nil, runstest.Options{Backend: store, Agents: agents, Beside: d.s, Owner: "cp-2"})
	waittest.Until(t, "all is concluded", func() bool {
		rec, err := store.Load(t.Context(), id)
		if errors.Is(err, binding.ErrNotFound) {
			return true
		}
		if err != nil {
			t.Fatal(err)
		}
		return rec.Run == nil && len(rec.Ending) == 0
	})
	d.check(t, store, id, seen, want)
	d.goOn(t, s, want)
}

// check compares what the record, the log and the ledger say.
func (d *dying) check(t *testing.T, store binding.Backend, id string, seen []json.RawMessage, want aftermath) {
	t.Helper()
	rec, err := store.Load(t.Context(), id)
	if err != nil && !errors.Is(err, binding.ErrNotFound) {
		t.Fatal(err)
	}
	got := aftermath{
		acts: d.acts.Load(), head: rec.Head.Revision, epoch: rec.Epoch, generation: rec.Generation, interrupted: rec.Interrupt != nil,
	}
	doc, err := store.LoadRun(t.Context(), d.run)
	switch {
	case err == nil:
		got.ends, got.effects = endsAs(t, doc.Terminal), doc.SideEffects
	case !errors.Is(err, binding.ErrNotFound):
		t.Fatal(err)
	}
	rows, err := store.Rows(t.Context(), id, 0, d.run)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		got.rows = append(got.rows, r.State)
	}
	if got.ends != want.ends || got.effects != want.effects || got.acts != want.acts || !slices.Equal(got.rows, want.rows) ||
		got.head != want.head || got.epoch != want.epoch || got.generation != want.generation || got.interrupted != want.interrupted {
		t.Errorf("left\n%+v, want\n%+v", got, want)
	}
	log := logOf(t, d.raw, id, d.run)
	if len(log) < len(seen) || !slices.EqualFunc(log[:len(seen)], seen, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
		t.Errorf("%d events could be read when the replica died, and are no beginning of the %d that stand", len(seen), len(log))
	}
	terminals := 0
	for _, raw := range log {
		var e event.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		if e.Type().Terminal() {
			terminals++
		}
	}
	if want.ends != nothing && terminals != 1 {
		t.Errorf("%d terminals", terminals)
	}
}

// goOn asks another replica for the same thing again, and for the next turn.
func (d *dying) goOn(t *testing.T, s *runstest.Stack, want aftermath) {
	t.Helper()
	s.Workers.Play(asking(&s))
	if r := d.again(t, s); r.RunID != d.run && want.epoch == 0 || r.New != (want.ends == nothing) {
		t.Errorf("asked again: %+v, and the run was %s", r, d.run)
	}
	if want.ends == nothing {
		waittest.Until(t, "it has ended", func() bool { return s.Record(t, bindingID(t)).Run == nil })
	}
	if rec := s.Record(t, bindingID(t)); rec.Interrupt != nil { // the next message would need the answer
		if _, err := s.Runs.Clear(t.Context(), runstest.Caller(), "demo", "c1", nil); err != nil {
			t.Fatal(err)
		}
	}
	s.Workers.Play(turn(&s, "going on"))
	last[event.RunFinished](t, follow(t, s, start(t, s, "go on").RunID))
}

// bindingID of the one conversation.
func bindingID(t *testing.T) string {
	t.Helper()
	ids, err := binding.NewIDs([]byte("kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"))
	if err != nil {
		t.Fatal(err)
	}
	return ids.BindingID(binding.Identity{Environment: "test", Subject: "user-1", Organization: "default", AgentID: "demo", ConversationID: "c1"})
}

func endsAs(t *testing.T, terminal json.RawMessage) string {
	t.Helper()
	var e event.Event
	if err := json.Unmarshal(terminal, &e); err != nil {
		t.Fatal(err)
	}
	switch d := e.Data.(type) {
	case event.RunError:
		return string(e.Type()) + " " + d.Code
	case event.RunCancelled:
		return string(e.Type()) + " " + string(d.Reason)
	}
	return string(e.Type())
}

// logOf is what a reader can see of a run.
func logOf(t *testing.T, w *binding.Writer, id, run string) (events []json.RawMessage) {
	t.Helper()
	for {
		p, err := w.Events(t.Context(), id, run, uint64(len(events)), 0)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, p.Events...)
		if len(p.Events) == 0 || p.Ended {
			return events
		}
	}
}
