package runs_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// tally is a meter whose counters count by reason.
type tally struct {
	noop.Meter

	mu sync.Mutex
	by map[string]int64
}

// Int64Counter implements metric.Meter.
func (m *tally) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return tallied{m: m}, nil
}

type tallied struct {
	noop.Int64Counter

	m *tally
}

// Add implements metric.Int64Counter.
func (c tallied) Add(_ context.Context, n int64, options ...metric.AddOption) {
	attributes := metric.NewAddConfig(options).Attributes()
	reason, _ := attributes.Value("reason")
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.m.by == nil {
		c.m.by = map[string]int64{}
	}
	c.m.by[reason.AsString()] += n
}

func (m *tally) counted() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.by)
}

// What comes after a terminal, a cancel, a deadline or a replacement is not in the
// log, changes no end, and is counted by its reason.
func TestLateEventsAreDroppedAndCounted(t *testing.T) {
	t.Parallel()
	said := []event.Data{event.TextDelta{MessageID: "m1", Delta: "late"}, event.TextDelta{MessageID: "m1", Delta: "later"}}
	for reason, c := range map[string]struct {
		want string
		// then does what makes the events late, once the first of the run are committed.
		then func(context.Context, *runstest.Stack, *runstest.Play) error
		// terminal is the worker's own, sent before the late events.
		terminal bool
	}{
		"terminal": {want: finished, terminal: true, then: func(ctx context.Context, s *runstest.Stack, p *runstest.Play) error { return s.Commit(ctx, p, "ref") }},
		"cancel":   {want: cancelled, then: ends(binding.End{Kind: binding.EndCancelling, Reason: string(event.CancelledByClient)})},
		"deadline": {want: "run.cancelled deadline", then: ends(binding.End{Kind: binding.EndCancelling, Reason: string(event.CancelledByDeadline)})},
		"replacement": {want: lost, then: func(ctx context.Context, s *runstest.Stack, p *runstest.Play) error {
			e := p.Turn.Envelope
			_, err := s.Writer.Replace(ctx, e.BindingID, e.Epoch, e.Generation, func(g uint32) string { return binding.ClaimName(e.BindingID, g) }, "default")
			return err
		}},
		"end": {want: "run.error internal", then: ends(binding.End{Kind: binding.EndError, Reason: "internal"})},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			var m tally
			s := newStack(t, func(s **runstest.Stack) runstest.Script {
				return func(ctx context.Context, p *runstest.Play) error {
					if err := p.Emit(ctx, started(), event.TextStarted{MessageID: "m1"}); err != nil {
						return err
					}
					if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: "in time"}); err != nil {
						return err
					}
					if c.terminal {
						if err := p.Emit(ctx, event.TextFinished{MessageID: "m1"}); err != nil {
							return err
						}
						return errors.Join(c.then(ctx, *s, p), afterTerminal(ctx, p))
					}
					if err := committed(ctx, *s, p); err != nil {
						return err
					}
					return errors.Join(c.then(ctx, *s, p), p.Emit(ctx, said...))
				}
			}, runstest.Options{Change: func(cfg *runs.Config) {
				// A beat would find out about the end, and the stream be cut before it is read.
				cfg.Meter, cfg.BeatEvery = &m, time.Hour
			}})
			r := start(t, s, "hi")
			d := document(t, s, r.RunID)
			if got := endsAs(t, d.Terminal); got != c.want {
				t.Errorf("ended as %s, want %s", got, c.want)
			}
			for _, e := range follow(t, s, r.RunID) {
				if delta, ok := e.Data.(event.TextDelta); ok && delta.Delta != "in time" {
					t.Errorf("%q is in the log", delta.Delta)
				}
			}
			waittest.Until(t, "both are counted", func() bool { return m.counted()[reason] >= 2 })
			if got := m.counted(); len(got) != 1 || got[reason] != 2 {
				t.Errorf("counted %v", got)
			}
		})
	}
}

// committed waits until all that was emitted stands in the record.
func committed(ctx context.Context, s *runstest.Stack, p *runstest.Play) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		rec, err := s.Writer.Backend().Load(ctx, p.Turn.Envelope.BindingID)
		if err != nil || rec.Run == nil {
			return err
		}
		if rec.Run.EventHead > p.LastSequence() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ends decides how a run ends, as another replica would.
func ends(e binding.End) func(context.Context, *runstest.Stack, *runstest.Play) error {
	return func(ctx context.Context, s *runstest.Stack, p *runstest.Play) error {
		g, err := s.Guard.Admit(ctx, p.Turn.Envelope)
		if err != nil {
			return err
		}
		_, err = s.Writer.SetEnd(ctx, g, e)
		return err
	}
}

// afterTerminal sends a terminal with an event behind it in one frame, and another
// event in a frame of its own.
func afterTerminal(ctx context.Context, p *runstest.Play) error {
	f, next := p.Frame, p.LastSequence()+1
	for _, d := range []event.Data{event.RunFinished{StopReason: "stop"}, event.Warning{Code: "note", Message: "late"}, event.Warning{Code: "note", Message: "later"}} {
		f.Events = append(f.Events, event.Draft{Data: d}.Event(p.Turn.Envelope.RunID, p.Turn.ConversationID, next, time.Now().UTC()))
		next++
	}
	behind := f
	f.Events, behind.Events = f.Events[:2], f.Events[2:]
	return errors.Join(p.Send(ctx, f), p.Send(ctx, behind))
}
