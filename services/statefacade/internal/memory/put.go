package memory

import (
	"context"
	"crypto/sha256"

	"cofferdam.dev/services/statefacade/internal/memory/lexical"
)

// Put is a record to store.
type Put struct {
	Scope       Scope
	Key         string
	Kind        Kind
	ContentType string
	Content     []byte
	// Expected revision; nil where the record must not exist yet.
	Expected *uint64
	// Retention profile; empty is the scope's default.
	Retention string
	// Sources that the record consolidates: each must stand at its revision, in the
	// same scope. They stay as they are.
	Sources []Source
	// CallID is the tool call that asks for it; empty where there is none.
	CallID string
}

// write is a put on its way through the pipeline.
type write struct {
	caller Caller
	put    Put
	place  place
	// content is what is stored of the put's, after so many redactions.
	content    []byte
	redactions int
	result     Stored
}

// step is one stage of the write pipeline. It may change the write, or refuse it.
type step func(context.Context, *write) error

// pipeline is the contract's write pipeline, in its order. Asking for approval,
// comparing the revision and storing are one step: approval is decided by the
// admission, and comparing and storing are one write.
func (s *Service) pipeline() []step {
	return []step{s.authorize, s.validate, s.screen, s.store}
}

// Put stores one record where its revision is the expected one, at most once for
// the idempotency key of the grant in its run.
//
// Faults: memory_scope_denied; invalid_request; memory_rejected; approval_required;
// memory_revision_conflict, also where a source does not stand at its revision;
// idempotency_conflict; capacity; stale_lease and cancelled with nothing stored;
// tool_outcome_unknown where the store did not tell, after which the same request
// settles it.
func (s *Service) Put(ctx context.Context, c Caller, p Put) (Stored, error) {
	w := &write{caller: c, put: p}
	for _, step := range s.pipeline() {
		if err := step(ctx, w); err != nil {
			return Stored{}, err
		}
	}
	return w.result, nil
}

func (s *Service) authorize(ctx context.Context, w *write) (err error) {
	w.place, err = s.locateToWrite(ctx, w.caller, w.put.Scope)
	return err
}

func (s *Service) store(ctx context.Context, w *write) (err error) {
	p := w.put
	c := s.begun(w.caller, w.place.namespace, p.Key, OpPut, p.expected())
	if err := s.standing(ctx, &c); err != nil {
		return err
	}
	r := &c.Record
	r.Kind, r.ContentType, r.Content, r.SHA256 = p.Kind, p.ContentType, w.content, sha256.Sum256(w.content)
	r.Origin.Sources, r.Redactions = p.Sources, w.redactions
	r.Retention = s.cfg.Policy.Retention.profile(p.Scope, p.Retention)
	if lifetime, _ := s.cfg.Policy.Retention.lifetime(r.Retention); lifetime > 0 {
		r.ExpiresAt = r.UpdatedAt.Add(lifetime)
	}
	c.Words = lexical.Index(p.Key, string(w.content))
	w.result, err = s.do(ctx, w.caller, effect{
		kind: "memory.put", tool: "cofferdam.memory_put", arguments: p.arguments(), call: p.CallID, change: c,
		needsApproval: s.cfg.Policy.needsApproval(p.Scope, p.Kind) || c.Replaces != "" && s.cfg.Policy.needsApproval(p.Scope, c.Replaces),
	})
	return err
}

func (p Put) expected() uint64 {
	if p.Expected == nil {
		return 0
	}
	return *p.Expected
}

// arguments are those of the harness's tool. What that tool does not have is
// there only where it says something, so that nobody's approval is for less than
// what happens.
func (p Put) arguments() map[string]any {
	out := map[string]any{
		"scope": p.Scope, "key": p.Key, "kind": p.Kind, "content": string(p.Content), "revision": p.expected(),
	}
	if p.ContentType != TypeText {
		out["content_type"] = p.ContentType
	}
	if p.Retention != "" {
		out["retention"] = p.Retention
	}
	if len(p.Sources) > 0 {
		out["sources"] = p.Sources
	}
	return out
}
