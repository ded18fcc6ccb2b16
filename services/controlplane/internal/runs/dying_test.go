package runs_test

import (
	"context"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// effect is a turn with one effect, which its broker and its facade make beside the
// replica and die with it.
func (d *dying) effect() runstest.Script {
	return func(ctx context.Context, p *runstest.Play) error {
		if err := p.Emit(ctx, started()); err != nil {
			return err
		}
		if err := committed(ctx, d.s, p); err != nil {
			return err
		}
		if err := p.Text(ctx, "m1", "on it"); err != nil {
			return err
		}
		if err := committed(ctx, d.s, p); err != nil {
			return err
		}
		g, err := d.s.Guard.Admit(ctx, p.Turn.Envelope)
		if err != nil {
			return err
		}
		_, err = binding.NewEffects(d.s.Writer).Do(ctx, g, binding.Effect{Key: "call-1", Kind: "tool", ArgsDigest: "a"}, func(context.Context) ([]byte, error) {
			d.acts.Add(1)
			return []byte("done"), nil
		})
		if err != nil {
			return err
		}
		if err := d.s.Commit(ctx, p, "snap-1"); err != nil {
			return err
		}
		return p.Emit(ctx, event.RunFinished{StopReason: "stop"})
	}
}

// hangs says something and nothing more.
func (d *dying) hangs(spoken chan<- struct{}) runstest.Script {
	return func(ctx context.Context, p *runstest.Play) error {
		if err := p.Emit(ctx, started()); err != nil {
			return err
		}
		if err := p.Text(ctx, "m1", "wait"); err != nil {
			return err
		}
		if err := committed(ctx, d.s, p); err != nil {
			return err
		}
		close(spoken)
		<-ctx.Done()
		return ctx.Err()
	}
}

func (d *dying) turn() { _, _ = d.s.Runs.Start(d.ctx, runstest.Caller(), request()) }

// speaking starts a run that hangs and waits until it has spoken.
func (d *dying) speaking() bool {
	spoken := make(chan struct{})
	d.s.Workers.Play(d.hangs(spoken))
	d.turn()
	select {
	case <-spoken:
		return true
	case <-d.life.Died(): // sooner than that
	case <-d.ctx.Done():
	}
	return false
}

func (d *dying) hang() { d.speaking() }

func (d *dying) cancel() {
	if d.speaking() {
		_, _ = d.s.Runs.Cancel(d.ctx, runstest.Caller(), d.run, event.CancelledByClient)
	}
}

// clear clears the first epoch, also when it is asked again.
func (d *dying) clear() {
	first := uint32(0)
	d.again = func(t *testing.T, s *runstest.Stack) runs.Started {
		t.Helper()
		got, err := s.Runs.Clear(t.Context(), runstest.Caller(), "demo", "c1", &first)
		if err != nil || got.Epoch != 1 {
			t.Errorf("cleared again: %+v, %v", got, err)
		}
		return runs.Started{RunID: d.run}
	}
	if d.speaking() {
		_, _ = d.s.Runs.Clear(d.ctx, runstest.Caller(), "demo", "c1", &first)
	}
}

// evict lets the sandbox of a run die, so that its lease is replaced.
func (d *dying) evict() {
	if !d.speaking() {
		return
	}
	rec, err := d.raw.Backend().Load(d.ctx, bindingID(d.t))
	if err == nil && rec.Lease != nil {
		d.s.Provider.Kill(rec.Lease.ClaimName)
	}
}

// adopt leaves a run of a replica that is gone, with an effect that was admitted and
// not begun.
func (d *dying) adopt() {
	store := d.raw.Backend()
	beside := &runstest.Stack{Writer: d.raw}
	run := orphan(d.t, beside, "cp-0")
	d.run = run.ID
	d.again = func(t *testing.T, s *runstest.Stack) runs.Started {
		t.Helper()
		status, err := s.Runs.Status(t.Context(), runstest.Caller(), run.ID)
		if err != nil || status.State != "ended" {
			t.Errorf("asked again: %+v, %v", status, err)
		}
		return runs.Started{RunID: run.ID}
	}
	_, err := store.Update(d.ctx, bindingID(d.t), binding.Filter{RunID: &run.ID}, func(r *binding.Record) error {
		r.Run.Admitted, r.Run.Admissions = []string{"call-1"}, 1
		return nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// resume answers a question that another run asked.
func (d *dying) resume() {
	beside := &runstest.Stack{Writer: d.raw, Guard: fence.NewGuard(d.raw, time.Now)}
	d.s.Workers.Play(asking(&beside))
	d.turn()
	asks := d.run
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		rec, err := d.raw.Backend().Load(d.ctx, bindingID(d.t))
		if err == nil && rec.Interrupt != nil && rec.Run == nil && len(rec.Ending) == 0 {
			break
		}
		select {
		case <-tick.C:
		case <-d.ctx.Done():
			return
		}
	}
	d.run = binding.ResumeRunID(bindingID(d.t), 0, "i1", 1)
	req := runs.ResumeRequest{RunID: asks, InterruptID: "i1", Revision: 1, Decision: event.ResumeDecision{Tools: []event.ToolDecision{
		{ToolCallID: "c1", Decision: event.DecisionApprove}, {ToolCallID: "c2", Decision: event.DecisionReject},
	}}}
	d.again = func(t *testing.T, s *runstest.Stack) runs.Started {
		t.Helper()
		r, err := s.Runs.Resume(t.Context(), runstest.Caller(), req)
		if err != nil {
			t.Fatalf("the same decision again: %v", err)
		}
		return r
	}
	_, _ = d.s.Runs.Resume(d.ctx, runstest.Caller(), req)
}
