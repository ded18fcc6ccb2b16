package bindingtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

const simID = "hs_simulated"

// process is one of those who write to the record.
type process struct {
	s     *sim
	who   string
	w     *binding.Writer
	guard *fence.Guard
}

func (s *sim) process(who string) *process {
	w := binding.NewWriter(store{Memory: s.mem, s: s, who: who}, time.Now)
	return &process{s: s, who: who, w: w, guard: fence.NewGuard(w, time.Now)}
}

// called waits for a run, like a service that a worker calls, and admits the
// call.
func (p *process) called(ctx context.Context) (g fence.Grant, ok bool) {
	for range 40 {
		if g, ok = p.admit(ctx); ok || ctx.Err() != nil {
			break
		}
	}
	return g, ok
}

// admit is the door: what a worker's request goes through first.
func (p *process) admit(ctx context.Context) (fence.Grant, bool) {
	c, err := p.w.Committed(ctx, simID)
	if err != nil || c.RunID == "" {
		return fence.Grant{}, false
	}
	g, err := p.guard.Admit(ctx, fence.Envelope{
		BindingID: simID, Epoch: c.Epoch, Generation: c.Generation, RunID: c.RunID, Deadline: time.Now().Add(time.Hour),
	})
	return g, err == nil
}

func (p *process) params(ctx context.Context, key string) (binding.StartParams, error) {
	r, err := p.w.Backend().Load(ctx, simID)
	return binding.StartParams{
		BindingID: simID, RunID: binding.RunID(simID, r.Epoch, key), ContentDigest: key, Epoch: r.Epoch,
		Deadline: time.Now().Add(24 * time.Hour), Owner: p.who,
	}, err
}

// starter is a replica that starts the run of a key and drives it to its end.
func (p *process) starter(key string, rounds int) func(context.Context) {
	return func(ctx context.Context) {
		driven := make(map[string]bool)
		for range rounds {
			params, err := p.params(ctx, key)
			if err != nil {
				continue
			}
			st, err := p.w.Start(ctx, params)
			switch {
			case err != nil || st.Outcome == binding.Finished:
			case st.Outcome == binding.StartedNow:
				if driven[params.RunID] {
					p.s.violated("S4: run %s is given to %s twice", params.RunID, p.who)
				}
				driven[params.RunID] = true
				p.drive(ctx, params.RunID)
			case st.Record.Run != nil && st.Record.Run.Owner == p.who && !driven[params.RunID]:
				driven[params.RunID] = true
				p.drive(ctx, params.RunID) // a start whose reply was lost
			}
		}
	}
}

// drive appends two batches and brings the run to its end.
func (p *process) drive(ctx context.Context, runID string) {
	next := uint64(0)
	var b *binding.Batch
	for range 12 {
		g, ok := p.admit(ctx)
		if !ok || g.Envelope().RunID != runID || next >= 4 {
			break
		}
		if b == nil {
			nb := batch(next, fmt.Sprintf("%s %d", p.who, next), fmt.Sprintf("%s %d", p.who, next+1))
			b = &nb
		}
		switch head, err := p.w.Append(acts(ctx, g), g, p.who, *b); {
		case err == nil:
			p.s.promise(runID, *b)
			next, b = head, nil
			_ = p.w.Beat(ctx, g, p.who)
		case errors.Is(err, binding.ErrEnded):
			next = 4
		}
	}
	for range 8 { // the worker thinks
		_, _ = p.admit(ctx)
	}
	for range 12 {
		if g, ok := p.admit(ctx); !ok || g.Envelope().RunID != runID || p.end(ctx, g) {
			break
		}
	}
}

// end decides the end where it is open, and writes the terminal.
func (p *process) end(ctx context.Context, g fence.Grant) (done bool) {
	e, err := p.w.SetEnd(ctx, g, binding.End{Kind: binding.EndError, Reason: string(fault.ModelFailed)})
	if err != nil {
		return false
	}
	r, err := p.w.Backend().Load(ctx, simID)
	if err != nil || r.Run == nil || r.Run.ID != g.Envelope().RunID {
		return err == nil
	}
	effects, err := p.w.Revoke(ctx, r, binding.Ending{Epoch: r.Epoch, Generation: r.Generation, Run: r.Run})
	if err != nil {
		return false
	}
	b := batch(r.Run.EventHead, "closing", fmt.Sprintf("terminal %s %s", e.Kind, effects))
	_, err = p.w.Terminate(acts(ctx, g), g, p.who, b, e)
	return err == nil
}

// promise keeps what a process was told is in the log.
func (s *sim) promise(runID string, b binding.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promised[runID] = append(s.promised[runID], b)
}

// interval is how long a keeper sees the same beat before it takes over.
const interval = 100 * time.Millisecond

// keeper takes over, if it does, and concludes.
func (p *process) keeper(rounds int, eager bool) func(context.Context) {
	return func(ctx context.Context) {
		for range rounds {
			r, err := p.w.Backend().Load(ctx, simID)
			if err != nil {
				continue
			}
			if r.Run != nil && eager {
				time.Sleep(interval) //nolint:forbidigo // in a bubble
				_ = p.w.TakeOver(ctx, simID, r.Run.ID, r.Run.Owner, r.Run.OwnerBeat)
			}
			if e := r.EndingRun(); e != nil {
				_, _ = p.w.ConcludeRun(ctx, simID, e.Run.ID, closing)
			}
			for _, e := range r.Ending {
				if e.Lease != nil {
					_ = p.w.DropLease(ctx, simID, e.Lease.ClaimName)
				}
			}
		}
	}
}

func (p *process) archiver(ctx context.Context) {
	for range 10 {
		if r, err := p.w.Backend().Load(ctx, simID); err == nil && r.Run != nil {
			_ = p.w.Archive(ctx, simID, r.Run.ID)
		}
	}
}

func (p *process) replacer(ctx context.Context) {
	if r, err := p.w.Backend().Load(ctx, simID); err == nil {
		_, _ = p.w.Replace(ctx, simID, r.Epoch, r.Generation, name(simID), "p")
	}
}

func (p *process) clearer(ctx context.Context) {
	if r, err := p.w.Backend().Load(ctx, simID); err == nil {
		_, _ = p.w.Clear(ctx, simID, r.Epoch, r.Generation, name(simID), "p")
	}
}

func (p *process) canceller(ctx context.Context) {
	if g, ok := p.called(ctx); ok {
		_, _ = p.w.SetEnd(ctx, g, cancelled())
	}
}

// facade commits a head of the worker that it was called by.
func (p *process) facade(interrupt bool) func(context.Context) {
	return func(ctx context.Context) {
		g, ok := p.called(ctx)
		if !ok {
			return
		}
		r, err := p.w.Backend().Load(ctx, simID)
		if err != nil || r.Run == nil || r.Run.ID != g.Envelope().RunID {
			return
		}
		c := commit(r.Head.Revision, r.Run.EventHead)
		if r.Run.EventHead > 0 {
			c.LastSequence--
		}
		if interrupt {
			c.Interrupt = &binding.Interrupt{ID: "int", Hash: "h"}
		}
		head, end, err := p.w.CommitHead(acts(ctx, g), g, c)
		if err == nil && (head.RunID != g.Envelope().RunID || end.Open()) {
			p.s.violated("S3: a commit of run %s is answered with %+v and %v", g.Envelope().RunID, head, end)
		}
	}
}

// broker tries the one effect of the active run.
func (p *process) broker(ctx context.Context) {
	e := binding.NewEffects(p.w)
	for range 2 {
		g, ok := p.called(ctx)
		if !ok {
			continue
		}
		env := g.Envelope()
		ctx, cancel := context.WithTimeout(acts(ctx, g), time.Minute)
		_, err := e.Do(ctx, g, binding.Effect{Key: "fx", Kind: "tool", ArgsDigest: "a"}, func(ctx context.Context) ([]byte, error) {
			if _, err := p.s.turn(ctx, p.who, "act"); err != nil {
				return nil, &binding.NotBegun{Err: err}
			}
			if by, ok := binding.BeginBy(ctx); !ok || !time.Now().Before(by) {
				return nil, &binding.NotBegun{}
			}
			p.s.begin(binding.RowKey{BindingID: env.BindingID, Epoch: env.Epoch, RunID: env.RunID, Key: "fx"})
			if _, err := p.s.turn(ctx, p.who, "acted"); err != nil {
				return nil, err
			}
			return []byte("done"), nil
		})
		cancel()
		if err == nil && p.s.happened(env.RunID) != 1 {
			p.s.violated("S2: an outcome is told of an effect that happened %d times", p.s.happened(env.RunID))
		}
	}
}

func (s *sim) happened(runID string) int {
	s.mem.mu.Lock()
	defer s.mem.mu.Unlock()
	return s.begun[runID]
}

// resumer decides on whatever interrupt it sees.
func (p *process) resumer(decision string, wins map[string]string) func(context.Context) {
	return func(ctx context.Context) {
		for range 40 {
			r, err := p.w.Backend().Load(ctx, simID)
			if err != nil || r.Interrupt == nil {
				continue
			}
			i := *r.Interrupt
			params := binding.ResumeParams{InterruptID: i.ID, Revision: i.Revision, AskedBy: i.RunID, InterruptHash: i.Hash, DecisionHash: decision}
			params.StartParams, err = p.params(ctx, "")
			if err != nil || params.Epoch != r.Epoch {
				continue
			}
			params.RunID = binding.ResumeRunID(simID, r.Epoch, i.ID, i.Revision)
			st, err := p.w.Resume(ctx, params)
			if err != nil {
				continue
			}
			p.s.mu.Lock()
			other := wins[params.RunID]
			wins[params.RunID] = decision
			p.s.mu.Unlock()
			if other != "" && other != decision {
				p.s.violated("S6: both %q and %q win", other, decision)
			}
			if st.Outcome == binding.StartedNow {
				p.drive(ctx, params.RunID)
			}
		}
	}
}

// check looks at what is left when everything has come to rest.
func (s *sim) check() {
	ctx := context.Background()
	w := binding.NewWriter(s.mem, time.Now)
	r, err := s.mem.Load(ctx, simID)
	if err != nil || r.Run != nil || r.EndingRun() != nil {
		s.violated("L1: left at rest: %+v, %v", r, err)
		return
	}
	for _, row := range s.mem.rows {
		s.reached["row "+string(row.State)]++
	}
	for runID := range s.history.started {
		d, err := s.mem.LoadRun(ctx, runID)
		if err != nil {
			s.violated("L1: run %s has no document: %v", runID, err)
			continue
		}
		s.reached["end "+string(d.End.Kind)]++
		s.reached["side effects "+d.SideEffects]++
		s.reached["chunks"] += max(0, len(s.mem.chunks[runID])-1)
		var log []string
		for next := uint64(0); ; {
			page, err := w.Events(ctx, simID, runID, next, 2)
			if err != nil {
				s.violated("S5: run %s from %d: %v", runID, next, err)
				break
			}
			for _, e := range page.Events {
				log = append(log, decode[struct{ Type string }](e).Type)
			}
			if next = page.Next; page.Ended {
				break
			}
		}
		all := strings.Join(log, "\n")
		if strings.Count(all, "terminal") != 1 || !strings.HasPrefix(log[len(log)-1], "terminal") || uint64(len(log)) != d.Events {
			s.violated("S3: the log of run %s is %q, its document %+v", runID, log, d)
		}
		for _, b := range s.promised[runID] {
			for i, e := range b.Events {
				if at := b.First + uint64(i); at >= uint64(len(log)) || log[at] != decode[struct{ Type string }](e).Type {
					s.violated("S5: %s was promised at %d of run %s; the log is %q", e, at, runID, log)
				}
			}
		}
	}
}
