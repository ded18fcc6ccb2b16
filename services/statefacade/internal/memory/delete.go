package memory

import (
	"context"

	"cofferdam.dev/pkg/fault"
)

// Delete names the record that is to go.
type Delete struct {
	Scope Scope
	Key   string
	// Expected revision.
	Expected uint64
	// CallID is as in Put.
	CallID string
}

// Delete removes the content of one record where its revision is the expected
// one, at most once for the idempotency key of the grant in its run. What stays is
// the audit: that there was a record, its hash, and who wrote and deleted it. A
// later record under the key goes on from the revision of the deletion, so no one
// who read the old one can overwrite it unseen.
//
// Clearing a conversation deletes no memory. Faults are those of Put, and
// not_found.
func (s *Service) Delete(ctx context.Context, c Caller, d Delete) (Stored, error) {
	p, err := s.locateToWrite(ctx, c, d.Scope)
	if err != nil {
		return Stored{}, err
	}
	if !validKey(d.Key) || d.Expected == 0 {
		return Stored{}, fault.New(fault.InvalidRequest, "memory.Delete", fault.Detail("key and expected_revision: those of the record"))
	}
	change := s.begun(c, p.namespace, d.Key, OpDelete, d.Expected)
	if err := s.standing(ctx, &change); err != nil {
		return Stored{}, err
	}
	return s.do(ctx, c, effect{
		kind: "memory.delete", tool: "cofferdam.memory_delete", call: d.CallID, change: change,
		arguments:     map[string]any{"scope": d.Scope, "key": d.Key, "revision": d.Expected},
		needsApproval: change.Replaces != "" && s.cfg.Policy.needsApproval(d.Scope, change.Replaces),
	})
}
