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
	const op = "session.Start"
	digest, err := turnDigest(turn)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.startable(env, turn); err != nil {
		return nil, err
	}
	if o, ended := s.outcomes.of(env.RunID); ended {
		return o.again(ctx, env, digest)
	}
	switch {
	case s.active != nil && s.active.env.RunID == env.RunID && s.active.digest != digest:
		return nil, fault.New(fault.IdempotencyConflict, op)
	case s.active != nil:
		return nil, fault.New(fault.AlreadyRunning, op)
	case s.outcomes.full():
		return nil, fault.New(fault.SandboxLimit, op)
	}
	return s.begin(ctx, env, turn, tokens, digest)
}

// startable compares the run with what the worker is bound to. The door has
// asked the same; between the two the worker cannot have been bound to anything
// else.
func (s *Session) startable(env fence.Envelope, turn harness.Turn) error {
	const op = "session.Start"
	switch {
	case s.closed:
		return fault.New(fault.SandboxNotReady, op)
	case s.bind == nil, env.BindingID != s.bind.Envelope.BindingID, env.Epoch != s.bind.Envelope.Epoch, env.Generation != s.bind.Envelope.Generation:
		return fault.New(fault.StaleLease, op)
	case env.RunID == "":
		return fault.New(fault.InvalidRequest, op, fault.Detail("envelope.run_id: required"))
	case turn.ConversationID != s.bind.ConversationID:
		return fault.New(fault.InvalidRequest, op, fault.Detail("input.conversation_id: not the conversation of the binding"))
	}
	return nil
}

func (s *Session) begin(ctx context.Context, env fence.Envelope, turn harness.Turn, tokens []Token, digest [sha256.Size]byte) (*Run, error) {
	const op = "session.Start"
	bound := env.RunID == s.bind.Envelope.RunID
	if len(tokens) == 0 && bound {
		tokens = s.bind.Tokens
	}
	if len(tokens) == 0 && !bound {
		return nil, fault.New(fault.CapabilityMissing, op, fault.Detail("tokens: required for a run that the worker was not bound for"))
	}
	r := newRun(ctx, env, digest, s.cfg, turn.ConversationID)
	facades, err := s.connector.Connect(env, tokens, r)
	if err != nil {
		r.end()
		return nil, fault.From(err, op)
	}
	if bound {
		s.bind.Tokens = nil // from here on they belong to the run
	}
	if reason, cancelled := s.early.take(env.RunID); cancelled {
		r.cancel(reason)
	}
	s.active = r
	r.started = event.RunStarted{HarnessID: s.desc.ID, AdapterVersion: s.desc.AdapterVersion}
	runtime := s.runtime
	go func() {
		var result harness.Result
		err := errGone
		defer func() { s.finished(r, result, err) }()
		result, err = r.run(turn, facades, runtime)
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
	s.outcomes.remember(r.env.RunID, outcome{digest: r.digest, terminal: r.finish(result, err)})
	close(r.stopped)
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
