package loopback

import (
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

// outcome is that of the last call that ended among the main ones. Agents make
// side calls too, for titles and suggestions, with no tools or with a few; main
// are those that offer at least half as many tools as any.
func (l *ledger) outcome() Outcome {
	most := 0
	for _, c := range l.calls {
		most = max(most, c.tools)
	}
	for _, c := range slices.Backward(l.calls) {
		if c.ended && !c.idle && 2*c.tools >= most {
			return c.outcome
		}
	}
	return Outcome{}
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
	r.mu.Lock()
	defer r.mu.Unlock()
	c.ended, c.idle, c.outcome = true, idle, o
	r.models.usage.add(u)
}
