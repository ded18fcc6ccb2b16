package binding

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

const (
	// attempts is how often one effect may be begun anew: after an attempt that
	// provably did not begin, or one that died and may be repeated.
	attempts = 8
	// recordBound is how long the outcome of an effect is tried to be recorded
	// after its caller has gone.
	recordBound = 5 * time.Second
	// pollFirst and pollMost bound the pauses between looks at a row that another
	// process holds.
	pollFirst = 20 * time.Millisecond
	pollMost  = time.Second
	// storedAtOnce is how many Stored effects of one process are in their window at a
	// time. A store writes one after the other: as few as that are done within the window
	// on one that needs half a second for each, and they keep a fast one busy.
	storedAtOnce = 4
)

// Effects carries out write 4 of the contract's fencing file for everything that
// happens outside the record: tool calls, memory changes, completed uploads,
// delegated runs. A process has one Effects: it knows which of its own attempts
// are still under way. It is safe for concurrent use.
type Effects struct {
	w *Writer
	// incarnation begins the nonces of this process, so that a row which it left
	// behind is told from one that another process still works on.
	incarnation string

	mu sync.Mutex
	// live has a channel for each attempt under way, closed at its end.
	live map[string]chan struct{}
	// room is that of Stored effects.
	room *semaphore.Weighted
}

// NewEffects admits and records effects with w.
func NewEffects(w *Writer) *Effects {
	return &Effects{w: w, incarnation: newNonce(), live: make(map[string]chan struct{}), room: semaphore.NewWeighted(storedAtOnce)}
}

// Effect is something that is to happen at most once.
type Effect struct {
	// Key names the effect within its run, at most 128 bytes without '#'.
	Key string
	// Kind of effect, such as "tool" or "memory.put", at most 64 bytes.
	Kind string
	// ArgsDigest tells the same call from another one under the same key.
	ArgsDigest string
	// Repeatable says that the operator marked the effect idempotent or
	// read-only: it may run again after an attempt whose outcome is unknown.
	Repeatable bool
	// NeedsGrant says that a person has to have approved the very call, whose
	// ToolCallDigest ArgsDigest is. The admission decides it.
	NeedsGrant bool
	// CallID is the id of that call where it is not Key. Then Key has to follow from
	// it, so that a grant is for one effect.
	CallID string
	// Stored says that act writes to a store, and is over by BeginBy. Where many come at
	// once each would spend its window waiting for the others and begin again, and none
	// would ever be done: a few are admitted at a time, and the others wait before, until
	// the grant's deadline.
	Stored bool
	// Limit is the longest that act may take; 0 is until the grant's deadline.
	// Nobody waits longer than that for another process's attempt.
	Limit time.Duration
}

// Outcome is what an effect answered.
type Outcome struct {
	// Body as act gave it.
	Body []byte
	// Replayed says that the body was recorded by an earlier attempt.
	Replayed bool
}

// NotBegun wraps the error of an act that provably sent nothing: the effect did
// not begin, and may be tried again.
type NotBegun struct{ Err error } //nolint:errname // says what is the case

// Error is for the log.
func (e *NotBegun) Error() string {
	if e.Err == nil {
		return "not begun"
	}
	return "not begun: " + e.Err.Error()
}

// Unwrap gives the reason.
func (e *NotBegun) Unwrap() error { return e.Err }

// Do carries out one effect, at most once for its key in its run.
//
// It admits the key, inserts the ledger row, lets act happen within
// DispatchWindow of that, records what act answered, and answers with it. The
// same key with the same arguments again gives the recorded body; a concurrent
// duplicate waits for it, until ctx ends or Limit is over. act gets a context
// that ends with ctx, with the grant's deadline and after Limit; what takes long
// before anything is sent should look at BeginBy. Its body is recorded also when
// ctx has ended meanwhile, and has at most MaxOutcomeBytes.
//
// An act that fails with *NotBegun did nothing: Do answers with its reason, and
// the same key may be tried again. After any other error of act nobody knows
// what happened: tool_outcome_unknown, now and for each further try, unless the
// effect is Repeatable.
//
// Faults: stale_lease; approval_required; cancelled when the run's end is decided;
// idempotency_conflict for other arguments or another kind; capacity with
// MaxAdmitted effects open; tool_outcome_unknown; dependency_unavailable when
// the store does not answer or the window was missed, with nothing begun;
// deadline_exceeded.
func (e *Effects) Do(ctx context.Context, g fence.Grant, eff Effect, act func(ctx context.Context) ([]byte, error)) (Outcome, error) {
	const op = "binding.Do"
	f, env, err := filterOf(g)
	if err != nil {
		return Outcome{}, err
	}
	if err := eff.validate(op); err != nil {
		return Outcome{}, err
	}
	ctx, cancel := context.WithDeadline(ctx, env.Deadline)
	defer cancel()
	c := call{e: e, filter: f, env: env, eff: eff, act: act}
	err = fault.New(fault.DependencyUnavailable, op) // when every attempt was used up without beginning
	for n := range attempts {
		out, again, aerr := c.attempt(ctx, n)
		if !again {
			return out, fail(ctx, aerr, op)
		}
		if aerr != nil {
			err = aerr
		}
	}
	return Outcome{}, fail(ctx, err, op)
}

func (eff Effect) validate(op string) error {
	switch {
	case eff.Key == "" || len(eff.Key) > 128 || strings.ContainsRune(eff.Key, '#'):
		return misuse(op, "an effect's key has 1 to 128 bytes without #")
	case eff.Kind == "" || len(eff.Kind) > 64:
		return misuse(op, "an effect's kind has 1 to 64 bytes")
	case eff.ArgsDigest == "":
		return misuse(op, "an effect has a digest of its arguments")
	}
	return nil
}

// attemptKey names one attempt. Each has a row of its own, so that none is begun
// twice: what may be repeated is repeated under the next key, which goes through
// the whole of write 4 again.
func attemptKey(key string, n int) string {
	if n == 0 {
		return key
	}
	return key + "#" + strconv.Itoa(n)
}

// AttemptKeys are the keys of the rows that an effect of this key may have, in the
// order of its attempts.
func AttemptKeys(key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for n := range attempts {
			if !yield(attemptKey(key, n)) {
				return
			}
		}
	}
}

// enter waits for room where eff is Stored, and gives what leaves it, which can be
// repeated. Whoever waits in vain has admitted nothing.
func (e *Effects) enter(ctx context.Context, eff Effect) (leave func(), err error) {
	if !eff.Stored {
		return func() {}, nil
	}
	if err := e.room.Acquire(ctx, 1); err != nil {
		return nil, fault.Wrap(err, fault.CodeOf(err), "binding.Do", fault.SideEffects(SideEffectsNone))
	}
	return sync.OnceFunc(func() { e.room.Release(1) }), nil
}

// begin registers an attempt of this process and gives its nonce.
func (e *Effects) begin() (nonce string, end func()) {
	nonce = e.incarnation + "." + newNonce()
	done := make(chan struct{})
	e.mu.Lock()
	e.live[nonce] = done
	e.mu.Unlock()
	return nonce, func() {
		e.mu.Lock()
		delete(e.live, nonce)
		e.mu.Unlock()
		close(done)
	}
}

// under gives the channel of a live attempt of this process. ours says whether
// this process made the nonce at all.
func (e *Effects) under(nonce string) (done <-chan struct{}, ours bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c, ok := e.live[nonce]; ok {
		return c, true
	}
	return nil, strings.HasPrefix(nonce, e.incarnation+".")
}

type beginByKey struct{}

// BeginBy is the moment, on the monotonic clock, until which the act of an
// effect may still begin what it does; ok is false outside of an act. An act
// that comes later answers *NotBegun and does nothing.
func BeginBy(ctx context.Context) (t time.Time, ok bool) {
	t, ok = ctx.Value(beginByKey{}).(time.Time)
	return t, ok
}

// unknown is the answer when an effect may or may not have happened.
func unknown(cause error) error {
	return fault.Wrap(cause, fault.ToolOutcomeUnknown, "binding.Do", fault.SideEffects("possible"))
}

var (
	errDead      = errors.New("binding: an earlier attempt ended without an outcome")
	errLate      = errors.New("binding: the dispatch window was missed")
	errUnwritten = errors.New("binding: the outcome could not be recorded")
	errTooLarge  = errors.New("binding: the outcome is over its bound")
)
