package session

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/worker/internal/harness"
)

// Start begins a run, or gives the terminal of one that has ended. The run id
// decides which run it is: idempotency keys are scoped to their run, and its id
// follows from the key of whoever started it. A run begins at once and in a
// goroutine of its own, which ends with it and which Shutdown waits for.
//
// Whoever gets a Run has to read it to its end or call Disconnected. Errors:
// already_running; idempotency_conflict for other content under the same run;
// stale_lease for another lease, and for a run that ended too long ago;
// sandbox_limit after 16,384 runs; sandbox_not_ready; invalid_request.
func (s *Session) Start(ctx context.Context, env fence.Envelope, turn harness.Turn, tokens []Token) (*Run, error) {
	digest, err := turnDigest(turn)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := task{
		env: env, conversationID: turn.ConversationID, field: "input.", digest: digest, conflict: fault.IdempotencyConflict, tokens: tokens,
	}
	if again, err := s.startable(ctx, t); again != nil || err != nil {
		return again, err
	}
	runtime := s.built.runtime
	return s.begin(ctx, t, func(ctx context.Context, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
		return runtime.Stream(ctx, turn, f, emit)
	})
}

// task is a run to begin: a turn, or the answer to an interrupt.
type task struct {
	env            fence.Envelope
	conversationID string
	// field is where the request has the conversation.
	field string
	// digest tells it from another one under the same run, which is a conflict.
	digest   [sha256.Size]byte
	conflict fault.Code
	tokens   []Token
	// carried are the calls that count as started, and begun those of them that may
	// have effects already.
	carried []event.Carried
	begun   []string
}

// startable says whether a run may begin, or gives the terminal of one that has
// ended. The door has asked about the lease; between the two the worker cannot
// have been bound to anything else. The caller holds the lock.
func (s *Session) startable(ctx context.Context, t task) (again *Run, err error) {
	const op = "session.Start"
	switch env := t.env; {
	case s.closed:
		return nil, fault.New(fault.SandboxNotReady, op)
	case s.bind == nil, env.BindingID != s.bind.Envelope.BindingID, env.Epoch != s.bind.Envelope.Epoch, env.Generation != s.bind.Envelope.Generation:
		return nil, fault.New(fault.StaleLease, op)
	case env.RunID == "":
		return nil, fault.New(fault.InvalidRequest, op, fault.Detail("envelope.run_id: required"))
	case t.conversationID != s.bind.ConversationID:
		return nil, fault.New(fault.InvalidRequest, op, fault.Detail(t.field+"conversation_id: not the conversation of the binding"))
	}
	if o, ended := s.outcomes.of(t.env.RunID); ended {
		return o.again(ctx, t)
	}
	switch {
	case s.active != nil && s.active.env.RunID == t.env.RunID && s.active.digest != t.digest:
		return nil, fault.New(t.conflict, op)
	case s.active != nil:
		return nil, fault.New(fault.AlreadyRunning, op)
	case s.outcomes.full():
		return nil, fault.New(fault.SandboxLimit, op)
	}
	return nil, nil //nolint:nilnil // it may begin
}

// begin begins a run that may. The caller holds the lock.
func (s *Session) begin(ctx context.Context, t task, do work) (*Run, error) {
	const op = "session.Start"
	bound := t.env.RunID == s.bind.Envelope.RunID
	tokens := t.tokens
	if len(tokens) == 0 && bound {
		tokens = s.bind.Tokens
	}
	if len(tokens) == 0 && !bound {
		return nil, fault.New(fault.CapabilityMissing, op, fault.Detail("tokens: required for a run that the worker was not bound for"))
	}
	r := newRun(ctx, t.env, t.digest, s.cfg, t.conversationID, t.carried)
	schemas := s.built.schemas
	r.brokered = func(toolID string) bool { return schemas[toolID] != nil }
	r.delegates = s.bind.delegates
	for _, id := range t.begun {
		r.effects.suppose(toolKey(id))
	}
	facades, err := s.built.connector.Connect(t.env, tokens, r)
	if err != nil {
		r.end()
		return nil, fault.From(err, op)
	}
	facades = s.built.policy.Wrap(r.lend(facades))
	if bound {
		s.bind.Tokens = nil // from here on they belong to the run
	}
	if reason, cancelled := s.early.take(t.env.RunID); cancelled {
		r.cancel(reason)
	}
	s.active = r
	r.started = event.RunStarted{HarnessID: s.desc.ID, AdapterVersion: s.desc.AdapterVersion}
	go s.watch(r) //nolint:contextcheck // a worker that ends itself asks no caller
	go func() {
		var result harness.Result
		err := errGone
		defer func() { s.finished(r, result, err) }()
		result, err = r.run(do, facades)
	}()
	return r, nil
}

// errGone is what is left of a harness that ends its goroutine.
var errGone = errors.New("the harness ended its goroutine")

// finished ends a run. Whoever reads its terminal can start the next run: the
// session has room for one before the terminal is there.
func (s *Session) finished(r *Run, result harness.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = nil
	if !r.stuck { // otherwise it had its terminal before it stopped
		s.conclude(r, result, err)
	}
	close(r.stopped)
}

// conclude makes the terminal of a run and keeps what is to be known of it. The
// caller holds the lock.
func (s *Session) conclude(r *Run, result harness.Result, err error) {
	terminal := r.finish(result, err)
	s.outcomes.remember(r.env.RunID, outcome{digest: r.digest, terminal: terminal})
	s.pending.after(r)
}

// turnDigest tells the same turn from another one under the same run. A repeat
// may have another deadline.
func turnDigest(t harness.Turn) ([sha256.Size]byte, error) {
	t.Deadline = time.Time{}
	raw, err := json.Marshal(t)
	if err != nil {
		return [sha256.Size]byte{}, fault.Wrap(fmt.Errorf("digest of turn: %w", err), fault.InvalidRequest, "session.Start")
	}
	return sha256.Sum256(raw), nil
}
