package loopback

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// Result is how a model call ended.
type Result string

// The results of a model call.
const (
	// NotAsked stands where a run has made no call that could decide.
	NotAsked Result = ""
	// Finished is an answer that was whole, with its wire's terminal.
	Finished Result = "finished"
	// Failed is an answer with an error status, or with an error in it.
	Failed Result = "failed"
	// Cut is an answer that broke off, whoever broke it.
	Cut Result = "cut"
	// Exhausted is a call that the run's limit has refused.
	Exhausted Result = "exhausted"
)

// Outcome is what the model said at last, whatever the agent makes of it.
type Outcome struct {
	Result Result
	// Status of a failed call; 0 where no answer came.
	Status int
	// Code of a failed call.
	Code fault.Code
	// RetryAfter of a failed call; 0 where it is unknown.
	RetryAfter time.Duration
}

// Usage of tokens. What no model has told is nil.
type Usage struct{ Input, Output, Cached *uint64 }

// Known tells whether anything is.
func (u Usage) Known() bool { return u != Usage{} }

func (u *Usage) add(more Usage) {
	u.Input, u.Output, u.Cached = sum(u.Input, more.Input), sum(u.Output, more.Output), sum(u.Cached, more.Cached)
}

func sum(a, b *uint64) *uint64 {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	n := min(*a+*b, event.MaxInteger)
	return &n
}

// modelCall is one call in the run's ledger.
type modelCall struct {
	tools int
	ended bool
	// idle is a call that the program gave up before it had read anything: it says
	// nothing of the turn.
	idle    bool
	outcome Outcome
}

// ledger has the run's model calls in the order in which they began.
type ledger struct {
	calls []*modelCall
	usage Usage
}

// main are the outcomes of the main calls that have ended, the last one first.
// Agents make side calls too, for titles and suggestions, with no tools or with a
// few; main are those that offer at least half as many tools as any.
func (l *ledger) main() iter.Seq[Outcome] {
	return func(yield func(Outcome) bool) {
		most := 0
		for _, c := range l.calls {
			most = max(most, c.tools)
		}
		for _, c := range slices.Backward(l.calls) {
			if c.ended && !c.idle && 2*c.tools >= most && !yield(c.outcome) {
				return
			}
		}
	}
}

// outcome is that of the last main call. One that the run's limit has refused says
// nothing where it was to repeat one that had failed.
func (l *ledger) outcome() (last Outcome) {
	for o := range l.main() {
		switch {
		case o.Result == Exhausted:
			last = o
		case last.Result == Exhausted && o.Result == Finished:
			return last
		default:
			return o
		}
	}
	return last
}

// maxFailures is how many main calls may fail in a row for good. Programs try again
// by themselves, some of them for minutes.
const maxFailures = 3

// failures counts the main calls that have failed in a row, but for those that may
// pass by themselves.
func (l *ledger) failures() (n int) {
	for o := range l.main() {
		if o.Result != Cut && (o.Result != Failed || o.Code.Retryable()) {
			break
		}
		n++
	}
	return n
}

// Outcome decides how the turn ended: that of the last main call which has ended.
// A call that is still under way when the agent's turn is over is none of it.
func (r *Run) Outcome() Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.models.outcome()
}

// ModelCalls counts the calls so far, side calls included.
func (r *Run) ModelCalls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(len(r.models.calls), r.cfg.Limits.ModelCalls)
}

// Usage so far, side calls included.
func (r *Run) Usage() Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.models.usage
}

// beginModel counts a call; allowed is false beyond the limit.
func (r *Run) beginModel(tools int) (c *modelCall, allowed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Refused calls are kept once: an agent may try without end.
	if n := len(r.models.calls); n >= r.cfg.Limits.ModelCalls {
		if n == r.cfg.Limits.ModelCalls {
			r.models.calls = append(r.models.calls, &modelCall{})
		}
		c = r.models.calls[len(r.models.calls)-1]
		c.ended, c.tools, c.outcome = true, max(c.tools, tools), Outcome{Result: Exhausted}
		return c, false
	}
	c = &modelCall{tools: tools}
	r.models.calls = append(r.models.calls, c)
	return c, true
}

func (r *Run) endModel(c *modelCall, o Outcome, idle bool, u Usage) {
	if r.noteModel(c, o, idle, u) >= maxFailures {
		r.fail(fault.Wrap(fmt.Errorf("%d model calls in a row have failed", maxFailures), fault.ModelFailed, "loopback.endModel"))
	}
}

func (r *Run) noteModel(c *modelCall, o Outcome, idle bool, u Usage) (failures int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.ended, c.idle, c.outcome = true, idle, o
	r.models.usage.add(u)
	return r.models.failures()
}
