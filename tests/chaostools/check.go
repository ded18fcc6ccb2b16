package chaostools

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkTimeout bounds the search for an order of the operations on all keys.
const checkTimeout = time.Minute

// The states of a ledger row that a finished run may have.
const (
	rowConcluded     = "concluded"
	rowRevoked       = "revoked"
	rowNotDispatched = "not_dispatched"
	// rowDispatched stands for good where nobody can know the outcome.
	rowDispatched = "dispatched"
)

// call is one key: what was asked for, and what came of it.
type call struct {
	key string
	// asked is when its run was first asked for, and ended when its end was first
	// seen.
	asked, ended time.Time
	runID        string
	sideEffects  string
	// rows are the states of its rows in the ledger, in the order of their keys.
	rows []string
	// effects are the times at which they began.
	effects []time.Time
}

// state is what the ledger says of the call as a whole: of several rows all but
// the last one did not begin.
func (c *call) state() string {
	if len(c.rows) == 0 {
		return ""
	}
	return c.rows[len(c.rows)-1]
}

// wrong says what of a call cannot be true.
func (c *call) wrong() (out []string) {
	say := func(format string, args ...any) { out = append(out, c.key+": "+fmt.Sprintf(format, args...)) }
	n := len(c.effects)
	for i, s := range c.rows {
		switch s {
		case rowConcluded, rowRevoked, rowNotDispatched, rowDispatched:
		default:
			say("a row is %q", s)
		}
		if i < len(c.rows)-1 && s != rowNotDispatched {
			say("it was tried again after a row that is %q", s)
		}
	}
	switch s := c.state(); {
	case c.ended.IsZero():
		say("its run has not ended")
	case n > 1:
		say("its effect happened %d times", n)
	case s == "" && n > 0:
		say("it had an effect without a row")
	case (s == rowRevoked || s == rowNotDispatched) && n > 0:
		say("it had an effect and is %s", s)
	case s == rowConcluded && n == 0:
		say("it is concluded without an effect")
	case c.sideEffects == "none" && n > 0:
		say("its run says that there was no effect, and there was")
	case c.sideEffects == "known" && n == 0:
		say("its run says that its effect is known, and there was none")
	}
	return out
}

// The operations on a key, for the model.
type (
	opEffect struct{ key string }
	// opRevoke: nothing of the key may begin any more.
	opRevoke struct{ key string }
	// opRead is what the ledger said in the end.
	opRead struct{ key, state string }
)

// The states of the model.
const (
	fresh = iota
	happened
	revoked
)

// model is an effect that happens at most once, unless it was revoked before.
func model() porcupine.Model {
	keyOf := func(input any) string {
		switch op := input.(type) {
		case opEffect:
			return op.key
		case opRevoke:
			return op.key
		case opRead:
			return op.key
		}
		return ""
	}
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
			at := map[string]int{}
			for _, op := range history {
				i, there := at[keyOf(op.Input)]
				if !there {
					i = len(parts)
					at[keyOf(op.Input)], parts = i, append(parts, nil)
				}
				parts[i] = append(parts[i], op)
			}
			return parts
		},
		Init: func() any { return fresh },
		Step: func(state, input, _ any) (bool, any) {
			switch op := input.(type) {
			case opEffect:
				return state == fresh, happened
			case opRevoke:
				return state == fresh, revoked
			case opRead:
				switch op.state {
				case rowConcluded:
					return state == happened, state
				case rowRevoked:
					return state == revoked, state
				case rowDispatched:
					return state != revoked, state
				default: // never begun
					return state == fresh, state
				}
			}
			return false, state
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

// linearizable looks for an order of what happened that the model allows.
func linearizable(calls []*call, begun, over time.Time) porcupine.CheckResult {
	since := func(t time.Time) int64 { return t.Sub(begun).Nanoseconds() }
	var history []porcupine.Operation
	for client, c := range calls {
		add := func(input any, from, to time.Time) {
			history = append(history, porcupine.Operation{ClientId: client, Input: input, Call: since(from), Return: since(to)})
		}
		for _, at := range c.effects {
			add(opEffect{c.key}, at, at)
		}
		if c.state() == rowRevoked {
			// Whoever concluded the run revoked it before the run was seen to be over.
			add(opRevoke{c.key}, c.asked, c.ended)
		}
		add(opRead{c.key, c.state()}, over, over)
	}
	return porcupine.CheckOperationsTimeout(model(), history, checkTimeout)
}
