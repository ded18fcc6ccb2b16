package runs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"time"

	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/failpoint"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agents"
)

// StartRequest asks for a run. The caller may use the agent: that is checked
// before.
type StartRequest struct {
	AgentID        string
	ConversationID string
	Message        string
	Files          []InlineFile
	// ClientContext is one JSON object, or empty.
	ClientContext []byte
	// IdempotencyKey makes a repeated request the same run; empty is a new one.
	IdempotencyKey string
	// CancelOnDisconnect lets whoever reads the first stream of the run cancel it by
	// going away.
	CancelOnDisconnect bool
	// DelegatedBy is the call of another run on whose behalf the run works. Nobody
	// can be asked anything then, and the sandbox is given back at the end.
	DelegatedBy *binding.Delegation
	// Until is when the run ends at the latest; the zero time leaves that to its
	// agent.
	Until time.Time

	// stored are those of Files that are named by their ids.
	stored map[string]StoredFile
}

// Started is the run of a StartRequest.
type Started struct {
	RunID     string
	BindingID string
	Epoch     uint32
	// New is false when an earlier request with the same key had started it.
	New bool
	// AskedBy is the run whose interrupt this one resumes, and Carried are the calls
	// that it does not have to start.
	AskedBy string
	Carried []event.Carried
}

// startAttempts bounds how often a start waits for something that is ending.
const startAttempts = 20

// Start commits a run and drives it. It returns once the run is committed.
// Errors: not_found (agent, file), already_running, idempotency_conflict,
// interrupt_conflict while an interrupt waits for its answer, sandbox_capacity where
// it is known at once that there is no room, dependency_unavailable.
func (s *Service) Start(ctx context.Context, caller Caller, req StartRequest) (Started, error) {
	if s.stop.Err() != nil {
		return Started{}, fault.New(fault.DependencyUnavailable, "runs.Start", fault.RetryAfter(time.Second))
	}
	newest, err := s.cfg.Agents.Newest(ctx, req.AgentID)
	if err != nil {
		return Started{}, err
	}
	rec, agent, err := s.binding(ctx, caller, newest, req.ConversationID)
	if err != nil {
		return Started{}, err
	}
	if req.stored, err = s.stored(ctx, rec, req.Files); err != nil {
		return Started{}, err
	}
	if req.DelegatedBy != nil {
		agent = agent.Unattended()
	}
	if req.IdempotencyKey == "" {
		req.IdempotencyKey = rand.Text()
	}
	p := binding.StartParams{
		BindingID:     rec.ID,
		Epoch:         rec.Epoch,
		RunID:         binding.RunID(rec.ID, rec.Epoch, req.IdempotencyKey),
		RequestID:     "req_" + rand.Text(),
		KeyDigest:     digest(req.IdempotencyKey),
		ContentDigest: contentDigest(req),
		Deadline:      s.deadline(agent, req.Until),
		Owner:         s.cfg.Owner,
		DelegatedBy:   req.DelegatedBy,
		// Its head commit would take the interrupt away unanswered.
		NoInterrupt:  true,
		AwaitsStream: req.CancelOnDisconnect,
	}
	if rec.Interrupt == nil { // else the answer is that it waits
		if err := s.room(ctx, rec, agent, p.RunID); err != nil {
			return Started{}, err
		}
	}
	defer s.hub.expect(p.RunID)()
	started, err := s.commitStart(ctx, p.BindingID, func() (binding.Started, error) { return s.cfg.Writer.Start(ctx, p) })
	if err != nil {
		return Started{}, err
	}
	out := Started{RunID: p.RunID, BindingID: rec.ID, Epoch: p.Epoch, New: started.Outcome == binding.StartedNow}
	failpoint.Reach(failpoint.RunCommitted)
	if out.New {
		s.launch(trace.SpanContextFromContext(ctx), started.Record, agent, req, nil) //nolint:contextcheck // a run outlives the request that starts it
	}
	return out, nil
}

// deadline of a run that starts now.
func (s *Service) deadline(agent agents.Agent, until time.Time) time.Time {
	at := s.cfg.Now().Add(agent.Limits.RunTimeout()).UTC()
	if !until.IsZero() && until.Before(at) {
		return until.UTC()
	}
	return at
}

// binding gives the committed record of a conversation, made if there is none,
// with a lease generation that a run can be started on, and the agent in the version
// that the record names: the newest one when the conversation began.
func (s *Service) binding(ctx context.Context, caller Caller, agent agents.Agent, conversation string) (binding.Record, agents.Agent, error) {
	id := binding.Identity{
		Environment: s.cfg.Environment, Subject: caller.Subject, Organization: caller.Organization,
		AgentID: agent.ID, AgentVersion: agent.Version, ConversationID: conversation,
		HarnessID: agent.Harness, AdapterVersion: agent.AdapterVersion, ContractVersion: 1,
	}
	key := s.cfg.IDs.BindingID(id)
	rec, _, err := s.cfg.Writer.Backend().Insert(ctx, binding.Record{ID: key, Identity: id})
	if err != nil {
		return rec, agent, fault.Wrap(err, fault.DependencyUnavailable, "runs.binding")
	}
	if agent, err = s.agentOf(ctx, rec); err != nil || rec.Generation > 0 {
		return rec, agent, err
	}
	next, err := s.cfg.Leases.Replace(ctx, rec, agent.Profile)
	if errors.Is(err, binding.ErrFenced) { // another request was first
		next, err = s.cfg.Writer.Backend().Load(ctx, key)
	}
	if err != nil {
		return rec, agent, fault.From(err, "runs.binding")
	}
	return next, agent, nil
}

// agentOf is the agent of a conversation that has begun.
func (s *Service) agentOf(ctx context.Context, rec binding.Record) (agents.Agent, error) {
	return s.cfg.Agents.At(ctx, rec.Identity.AgentID, rec.Identity.AgentVersion)
}

// commitStart makes write 1 or 9. A run that is only still ending holds a start
// up for no longer than it takes to conclude it.
func (s *Service) commitStart(ctx context.Context, bindingID string, write func() (binding.Started, error)) (binding.Started, error) {
	for attempt := 0; ; attempt++ {
		started, err := write()
		if !fault.Is(err, fault.AlreadyRunning) || attempt >= startAttempts {
			return started, err
		}
		rec, lerr := s.cfg.Writer.Backend().Load(ctx, bindingID)
		if lerr != nil || rec.Run != nil {
			return started, err
		}
		s.concludeRuns(ctx, rec)
		select {
		case <-ctx.Done():
			return started, fault.From(ctx.Err(), "runs.Start")
		case <-time.After(time.Duration(attempt+1) * 5 * time.Millisecond):
		}
	}
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// contentDigest tells the same request from another one under the same key.
func contentDigest(req StartRequest) string {
	h := sha256.New()
	field(h, []byte(req.Message))
	field(h, req.ClientContext)
	for _, f := range req.Files {
		field(h, []byte(f.Name))
		field(h, []byte(f.MIMEType))
		field(h, f.Data)
		if f.ID != "" {
			field(h, []byte(f.ID))
		}
	}
	if req.CancelOnDisconnect {
		field(h, []byte("cancel on disconnect"))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// field writes a length before the bytes, so that no two lists of fields are
// the same stream.
func field(h hash.Hash, b []byte) {
	_, _ = fmt.Fprintf(h, "%d:", len(b)) // a hash never fails to write
	_, _ = h.Write(b)
}
