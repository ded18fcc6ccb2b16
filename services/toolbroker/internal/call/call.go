package call

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/toolbroker/internal/audit"
	"cofferdam.dev/services/toolbroker/internal/project"
)

// keepBound is how long keeping a large result may take.
const keepBound = 10 * time.Second

// prepareBound is how long what comes before the admission of a call may take.
const prepareBound = 10 * time.Second

// kind of this effect in the ledger.
const kind = "tool"

// Config is what a Service needs.
type Config struct {
	Tools      Tools
	Records    Records
	Effects    Effects
	Authorizer Authorizer
	// Results keeps results that are too large for an event; nil keeps none.
	Results Results
	// Assertions are for tools that are called with a token of the subject's; nil
	// makes none of them callable.
	Assertions Assertions
	Logger     *slog.Logger
	// Audit keeps decisions and outcomes; nil keeps none, and then the log has the
	// only line of them.
	Audit audit.Log
	// Digester writes subjects into the audit.
	Digester audit.Digester
}

// Service calls tools. It is safe for concurrent use.
type Service struct{ cfg Config }

// New makes a Service.
func New(cfg Config) *Service { return &Service{cfg} }

// Request is a worker's wish.
type Request struct {
	// Grant says for which run, and under which idempotency key.
	Grant fence.Grant
	// Allowed are the exact tool ids of the capability.
	Allowed []string
	// Approve are those of Allowed whose calls a person must have approved.
	Approve []string
	// ToolID is all that the worker says of what is to be called.
	ToolID string
	// ToolCallID is the call's name in the event log.
	ToolCallID string
	// Arguments are JSON text.
	Arguments []byte
	// Token gives the capability that the worker came with. It is a function
	// because fmt prints fields without asking.
	Token func() string
	// Answer to what the tool asked in an earlier call with these arguments; nil
	// for a call that answers nothing.
	Answer *UserAnswer
	// Tell is told what an agent does that the tool delegates to, see Within.
	Tell func(event.Event)
}

// Answer is the tool's answer.
type Answer struct {
	project.Result

	// Interrupt is set where the tool asks the user: the question as it has to be
	// shown, word for word. Its id is the key of the call that brings the answer.
	Interrupt *event.InterruptRequested
	// Progress is how many notifications of progress the tool's server sent.
	Progress int
	// Replayed says that it was recorded by an earlier call with the same key.
	Replayed bool
	// Ref leads to the whole of a result that was cut, if it could be kept.
	Ref string
}

// Call calls a tool, at most once for the key of the grant in its run.
//
// Faults: tool_not_allowed (the capability does not name it), tool_unavailable,
// tool_arguments_invalid, tool_denied (its subject may not use it, or not this
// agent), interrupt_conflict (the answer is none to what the tool asked in this
// binding, or not the committed one), dependency_unavailable (also where the audit cannot be written),
// rate_limited, and those of binding.Effects. A tool that fails is no fault: the answer
// says so.
func (s *Service) Call(ctx context.Context, req Request) (Answer, error) {
	t := newTrail(&s.cfg, req)
	answer, err := s.call(ctx, req, t)
	t.end(ctx, answer, err)
	return answer, err
}

func (s *Service) call(ctx context.Context, req Request, t *trail) (Answer, error) {
	const op = "toolbroker.Call"
	record, err := s.record(ctx, req)
	if err != nil {
		return Answer{}, err
	}
	t.subject = record.Identity.Subject
	if !slices.Contains(req.Allowed, req.ToolID) {
		return Answer{}, fault.New(fault.ToolNotAllowed, op)
	}
	tool, ok := s.cfg.Tools.Tool(req.ToolID)
	if !ok {
		return Answer{}, fault.New(fault.ToolUnavailable, op)
	}
	t.risk = tool.Risk()
	args, err := parseArguments(req.ToolID, req.Arguments, tool)
	if err != nil {
		return Answer{}, err
	}
	t.argsDigest = args.digest
	if err := s.authorize(ctx, req, record); err != nil {
		return Answer{}, err
	}
	cont, err := s.continued(ctx, req, record, args)
	if err != nil {
		return Answer{}, err
	}
	if err := t.allow(ctx); err != nil {
		return Answer{}, err
	}
	on := s.behalf(req, record)
	prepare(ctx, tool, on)
	var told atomic.Int64
	out, err := s.cfg.Effects.Do(ctx, req.Grant, binding.Effect{
		Key: req.Grant.Envelope().IdempotencyKey, Kind: kind, ArgsDigest: cont.digest(args),
		Repeatable: tool.Repeatable(), Limit: tool.Timeout() + keepBound,
		// The call that asked had its grant, and this one goes on with it.
		NeedsGrant: cont == nil && (tool.NeedsApproval() || slices.Contains(req.Approve, req.ToolID)),
	}, t.watch(func(ctx context.Context) ([]byte, error) {
		reply, err := s.act(ctx, req, tool, on, args, cont)
		if err != nil {
			return nil, err
		}
		told.Store(int64(reply.Progress))
		return encodeOutcome(reply.Result, s.keep(ctx, req, reply.Result), question{req.Grant, record.Identity.AgentID}.ask(args, reply.Asked))
	}))
	if err != nil {
		return Answer{}, err
	}
	o, err := decodeOutcome(out.Body)
	if err != nil {
		return Answer{}, fault.Wrap(err, fault.Internal, op)
	}
	answer := Answer{Result: o.result(), Progress: int(told.Load()), Replayed: out.Replayed, Ref: o.Ref}
	if o.Asked != nil {
		answer.Interrupt = &o.Asked.interrupt
	}
	return answer, nil
}

// record reads the committed record, from which subject and agent are taken.
func (s *Service) record(ctx context.Context, req Request) (binding.Record, error) {
	const op = "toolbroker.record"
	r, err := s.cfg.Records.Load(ctx, req.Grant.Envelope().BindingID)
	switch {
	case errors.Is(err, binding.ErrNotFound):
		return binding.Record{}, fault.New(fault.StaleLease, op)
	case err != nil:
		return binding.Record{}, fault.Wrap(err, fault.DependencyUnavailable, op)
	}
	return r, nil
}

// authorize asks for the committed subject, and not for anybody whom the worker
// could name. Both questions are asked at once.
func (s *Service) authorize(ctx context.Context, req Request, r binding.Record) error {
	const op = "toolbroker.authorize"
	objects := []string{authz.ToolID(req.ToolID), authz.AgentID(r.Identity.AgentID)}
	answers := make(chan error, len(objects))
	for _, object := range objects {
		go func() { answers <- s.cfg.Authorizer.Check(ctx, r.Identity.Subject, authz.CanInvoke, object) }()
	}
	var refused error
	for range objects { // waits for both, so that none outlives the request
		switch err := <-answers; {
		case fault.Is(err, fault.AccessDenied):
			refused = fault.Wrap(err, fault.ToolDenied, op)
		case err != nil && refused == nil:
			refused = err
		}
	}
	return refused
}

// act makes the call, unless what the person answered cannot be sent: then nothing
// is, and the same is asked once more. The row in the ledger is the permission for
// it.
//
// That a tool cannot be called is found out here and not before: a broker that
// was restarted may be asked again for a call that it has made already, before
// the tool's server is back, and then the ledger has the answer.
func (s *Service) act(ctx context.Context, req Request, tool Tool, on Behalf, args arguments, cont *continuation) (Reply, error) {
	const op = "toolbroker.act"
	in, again := cont.input()
	if again != nil {
		return *again, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tool.Timeout())
	defer cancel()
	ctx, done := s.whileItRuns(ctx, req.Grant)
	defer done()
	by, _ := binding.BeginBy(ctx)
	ctx = NewWithin(ctx, Within{Envelope: req.Grant.Envelope(), Tell: req.Tell})
	reply, err := Reply{}, fmt.Errorf("%w: %w", ErrNotSent, ErrUndefined)
	if !args.unchecked {
		reply, err = tool.Call(ctx, on, args.text, by, in)
	}
	switch {
	case errors.Is(err, ErrNotSent) && ctx.Err() != nil:
		return Reply{}, &binding.NotBegun{Err: ctx.Err()}
	case errors.Is(err, ErrNotSent) && errors.Is(err, ErrBusy):
		return Reply{}, &binding.NotBegun{Err: fault.Wrap(err, fault.RateLimited, op, fault.SideEffects("none"))}
	case errors.Is(err, ErrNotSent):
		return Reply{}, &binding.NotBegun{Err: fault.Wrap(err, fault.ToolUnavailable, op, fault.SideEffects("none"))}
	default:
		return reply, err
	}
}

// behalf is the committed subject, and not anybody whom the worker could name.
func (s *Service) behalf(req Request, r binding.Record) Behalf {
	env := req.Grant.Envelope()
	return Behalf{
		Subject: r.Identity.Subject, Organization: r.Identity.Organization,
		Assert: func(ctx context.Context, tokenURL string) (string, error) {
			if s.cfg.Assertions == nil {
				return "", fault.New(fault.DependencyUnavailable, "toolbroker.behalf")
			}
			return s.cfg.Assertions.Assert(ctx, env, req.Token(), tokenURL)
		},
	}
}

// prepare gives a tool time that a call does not have once it is admitted. Where
// the ledger has the answer already it was for nothing, and cannot be helped: only
// the insert of the row tells.
func prepare(ctx context.Context, tool Tool, on Behalf) {
	ctx, cancel := context.WithTimeout(ctx, min(tool.Timeout(), prepareBound))
	defer cancel()
	tool.Prepare(ctx, on)
}

// keep stores the whole of a result that was cut. The tool has answered, so that
// nothing that goes wrong here is an error of the call: what was cut stays cut.
// It goes on when the worker is away, which may ask again for the outcome.
func (s *Service) keep(ctx context.Context, req Request, result project.Result) (ref string) {
	if result.Whole == nil || s.cfg.Results == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepBound)
	defer cancel()
	ref, err := s.cfg.Results.Put(ctx, req.Grant.Envelope(), req.Token(), result.Whole)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "a result that was cut could not be kept as a whole",
			"tool_id", req.ToolID, "tool_call_id", req.ToolCallID, "bytes", len(result.Whole), "code", string(fault.CodeOf(err)))
		return ""
	}
	return ref
}
