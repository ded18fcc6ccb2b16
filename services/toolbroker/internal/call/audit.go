package call

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/toolbroker/internal/audit"
)

// auditTimeout bounds the writing of one record. A worker that goes away, or the
// end of its run, is no reason to write none.
const auditTimeout = 5 * time.Second

// trail is what is known of a request while it is worked on. It has no argument
// and no result, and of the caller only the binding, whose id is a keyed digest,
// and the digest of the subject.
type trail struct {
	Request

	cfg     *Config
	id      string
	began   time.Time
	subject string
	risk    string

	argsDigest string
	allowed    bool
	// acted says that a request to the tool may have left on behalf of this one.
	acted atomic.Bool
}

func newTrail(cfg *Config, req Request) *trail {
	return &trail{Request: req, cfg: cfg, id: rand.Text(), began: time.Now()}
}

// allow writes the decision that the call may be made. Where that fails nothing
// may be dispatched.
func (t *trail) allow(ctx context.Context) error {
	r := t.record(audit.KindDecision, audit.Allowed)
	if err := t.append(ctx, r); err != nil {
		return fault.Wrap(err, fault.DependencyUnavailable, "toolbroker.audit", fault.SideEffects("none"))
	}
	t.allowed = true
	return nil
}

// watch notes whether act may have sent something.
func (t *trail) watch(act func(context.Context) ([]byte, error)) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		t.acted.Store(true)
		body, err := act(ctx)
		if _, not := errors.AsType[*binding.NotBegun](err); not {
			t.acted.Store(false)
		}
		return body, err
	}
}

// end writes what came of the request, to the audit and to the log.
func (t *trail) end(ctx context.Context, answer Answer, err error) {
	r := t.record(audit.KindDecision, audit.Refused)
	if t.allowed {
		r = t.record(audit.KindOutcome, audit.Allowed)
		r.Outcome, r.SideEffects = t.outcome(answer, err)
	}
	f := fault.From(err, "")
	if f != nil {
		r.Reason, r.Incident = string(f.Code()), f.Incident()
	}
	if werr := t.append(ctx, r); werr != nil {
		// What was done is done; the worker gets its answer, and no further call
		// is allowed while the audit cannot be written.
		t.cfg.Logger.ErrorContext(ctx, "audit record was not written", "call", t.id, "kind", r.Kind, "error", werr.Error())
	}
	t.log(ctx, answer, f)
}

func (t *trail) append(ctx context.Context, r audit.Record) error {
	if t.cfg.Audit == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	return t.cfg.Audit.Append(ctx, r)
}

func (t *trail) record(kind, decision string) audit.Record {
	e := t.Grant.Envelope()
	now := time.Now()
	return audit.Record{
		Time: now.UTC(), Call: t.id, Kind: kind, Subject: t.cfg.Digester.Subject(t.subject), BindingID: e.BindingID, Epoch: uint64(e.Epoch),
		Generation: uint64(e.Generation), RunID: e.RunID, Key: e.IdempotencyKey, ToolID: t.ToolID, ToolCallID: t.ToolCallID, Risk: t.risk,
		Arguments: t.argsDigest, Decision: decision, DurationMS: now.Sub(t.began).Milliseconds(),
	}
}

// outcome says how an allowed call ended. What did not even reach the tool's
// server, and has no row of unknown outcome before it, was not called.
func (t *trail) outcome(answer Answer, err error) (outcome, effects string) {
	f := fault.From(err, "")
	switch {
	case f == nil && answer.Replayed:
		return audit.OutcomeReplayed, audit.EffectsKnown
	case f == nil && answer.Interrupt != nil:
		return audit.OutcomeAsked, audit.EffectsKnown
	case f == nil && answer.IsError:
		return audit.OutcomeToolError, audit.EffectsKnown
	case f == nil:
		return audit.OutcomeOK, audit.EffectsKnown
	case !t.acted.Load() && f.Code() != fault.ToolOutcomeUnknown:
		return audit.OutcomeNotCalled, audit.EffectsNone
	default:
		return audit.OutcomeUnknown, audit.EffectsPossible
	}
}

func (t *trail) log(ctx context.Context, answer Answer, f *fault.Error) {
	e := t.Grant.Envelope()
	attrs := []slog.Attr{
		slog.String("binding_id", e.BindingID), slog.Uint64("epoch", uint64(e.Epoch)), slog.Uint64("generation", uint64(e.Generation)),
		slog.String("run_id", e.RunID), slog.String("tool_id", t.ToolID), slog.String("tool_call_id", t.ToolCallID),
		slog.String("arguments", t.argsDigest), slog.Bool("allowed", t.allowed), slog.Duration("took", time.Since(t.began)),
	}
	if f != nil {
		attrs = append(attrs, slog.String("code", string(f.Code())), slog.String("incident_id", f.Incident()))
	} else {
		attrs = append(attrs, slog.Bool("is_error", answer.IsError), slog.Bool("truncated", answer.Truncated), slog.Bool("replayed", answer.Replayed), slog.Bool("asks", answer.Interrupt != nil), slog.Int("progress", answer.Progress))
	}
	t.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "tool call", attrs...)
}
