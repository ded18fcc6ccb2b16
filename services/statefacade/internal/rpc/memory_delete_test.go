package rpc_test

import (
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/services/statefacade/internal/memory"
)

func (s *session) delete(t *testing.T, e fence.Envelope, key string, revision uint64) (*memoryv1.DeleteResponse, error) {
	t.Helper()
	return s.memory.Delete(s.ctx(t, e), &memoryv1.DeleteRequest{
		Envelope: e.Proto(), Scope: memoryv1.Scope_SCOPE_USER, Key: key, ExpectedRevision: revision,
	})
}

// What a record said is gone once it is deleted; that there was one, who wrote it
// and who deleted it stays.
func TestDelete(t *testing.T) {
	s := newSession(t, capability.Memory)
	_, err := s.put(t, "key", "canary content", nil)
	must(t, err)
	_, err = s.delete(t, s.stand.Envelope(), "key", 2)
	wantCode(t, err, fault.MemoryRevisionConflict)
	_, err = s.delete(t, s.stand.Envelope(), "other", 1)
	wantCode(t, err, fault.NotFound)
	s.wantMemory(t, "key", 1, "canary content")

	e := s.stand.Envelope()
	for replayed := range 2 {
		res, err := s.delete(t, e, "key", 1)
		if err != nil || res.GetRevision() != 2 || res.GetReplayed() != (replayed > 0) {
			t.Errorf("got %v, %v", res, err)
		}
	}
	_, err = s.getAs(t, s.stand.Envelope(), "key")
	wantCode(t, err, fault.NotFound)
	if got := s.keys(t, "canary"); got != "" {
		t.Errorf("found: %s", got)
	}
	if state := s.state(t); strings.Contains(state, "canary") || strings.Count(state, s.stand.RunID) != 3 {
		t.Errorf("the store has\n%s", state)
	}
	_, err = s.delete(t, e, "other", 1) // the same key for another deletion
	wantCode(t, err, fault.IdempotencyConflict)
	_, err = s.memory.Put(s.ctx(t, e), putRequest(e.Proto(), "key", "content", nil)) // or for another kind of effect
	wantCode(t, err, fault.IdempotencyConflict)
	_, err = s.put(t, "key", "late", new(uint64(1)))
	wantCode(t, err, fault.MemoryRevisionConflict)
	res, err := s.put(t, "key", "new", nil)
	if err != nil || res.GetRevision() != 3 {
		t.Errorf("got %v, %v", res, err)
	}
}

func TestDeleteWhoseOutcomeIsUnknownIsSettledByTheSameRequest(t *testing.T) {
	s := newSession(t, capability.Memory)
	_, err := s.put(t, "key", "content", nil)
	must(t, err)
	e := s.stand.Envelope()
	s.memories.changeError = errLost
	_, err = s.delete(t, e, "key", 1)
	wantCode(t, err, fault.ToolOutcomeUnknown)
	res, err := s.delete(t, e, "key", 1)
	if err != nil || res.GetRevision() != 2 {
		t.Errorf("got %v, %v", res, err)
	}
}

func TestDeleteAfterTheEndIsDecided(t *testing.T) {
	s := newSession(t, capability.Memory)
	_, err := s.put(t, "key", "content", nil)
	must(t, err)
	_, err = s.stand.Writer.SetEnd(t.Context(), s.stand.Grant(t, s.stand.Envelope()), binding.End{Kind: binding.EndCancelling, Reason: "shutdown"})
	must(t, err)
	_, err = s.delete(t, s.stand.Envelope(), "key", 1)
	wantCode(t, err, fault.Cancelled)
	s.wantMemory(t, "key", 1, "content")
}

// Clearing a conversation deletes no memory.
func TestClearLeavesMemory(t *testing.T) {
	s := newSession(t, capability.Memory)
	_, err := s.put(t, "key", "content", nil)
	must(t, err)
	r := s.stand.Record(t)
	_, err = s.stand.Writer.Clear(t.Context(), s.stand.BindingID, r.Epoch, r.Generation, func(uint32) string { return "claim" }, "test")
	must(t, err)
	other := *s
	other.opened = &opened{stand: s.stand.Another(t, func(id *binding.Identity) { id.ConversationID = "conversation-2" })}
	other.wantMemory(t, "key", 1, "content")
}

// A record is kept as long as the operator's profile says, and not read after
// that, whether or not it was swept.
func TestRetention(t *testing.T) {
	s := newSessionWith(t, capability.Memory, memory.Policy{Retention: memory.Retention{
		Days: map[string]int{"week": 7, "day": 1}, Default: map[memory.Scope]string{memory.ScopeUser: "week"},
	}})
	for key, profile := range map[string]string{"default": "", "short": "day", "kept": "keep"} {
		e := s.stand.Envelope()
		req := putRequest(e.Proto(), key, "content", nil)
		req.Retention = profile
		_, err := s.memory.Put(s.ctx(t, e), req)
		must(t, err)
	}
	service := s.config().Memory
	for _, step := range []struct {
		after   time.Duration
		there   string
		deleted int
	}{
		{0, "default kept short", 0}, {25 * time.Hour, "default kept", 1}, {8 * 24 * time.Hour, "kept", 1}, {50 * 365 * 24 * time.Hour, "kept", 0},
	} {
		s.ahead = step.after
		for range 2 { // what is swept makes no difference
			var there []string
			for _, key := range []string{"default", "kept", "short"} {
				// The run's deadline is over long before: the store alone is asked.
				if _, err := s.memories.Get(t.Context(), s.namespace(t), key, s.now()); err == nil {
					there = append(there, key)
				}
			}
			if got := strings.Join(there, " "); got != step.there {
				t.Errorf("after %v there are %s, want %s", step.after, got, step.there)
			}
			n, err := service.Sweep(t.Context())
			if err != nil || n != step.deleted {
				t.Errorf("after %v: %d were deleted, %v, want %d", step.after, n, err, step.deleted)
			}
			step.deleted = 0
		}
	}
	s.ahead = 0
	r, err := s.getAs(t, s.stand.Envelope(), "kept")
	if err != nil || r.GetExpiresAt() != nil {
		t.Errorf("got %v, %v", r, err)
	}
}

// A record can be made of others, and says so.
func TestConsolidation(t *testing.T) {
	s := newSession(t, capability.Memory)
	for _, key := range []string{"a", "b"} {
		_, err := s.put(t, key, "about "+key, nil)
		must(t, err)
	}
	merge := func(key string, sources ...*memoryv1.Source) (*memoryv1.PutResponse, error) {
		e := s.stand.Envelope()
		req := putRequest(e.Proto(), key, "about a and b", nil)
		req.Sources = sources
		return s.memory.Put(s.ctx(t, e), req)
	}
	_, err := merge("both", &memoryv1.Source{Key: "a", Revision: 1}, &memoryv1.Source{Key: "b", Revision: 2})
	wantCode(t, err, fault.MemoryRevisionConflict)
	_, err = merge("both", &memoryv1.Source{Key: "a", Revision: 1}, &memoryv1.Source{Key: "b", Revision: 1})
	must(t, err)
	r, err := s.getAs(t, s.stand.Envelope(), "both")
	if err != nil || len(r.GetSources()) != 2 || r.GetSources()[1].GetKey() != "b" || r.GetSources()[1].GetRevision() != 1 {
		t.Errorf("got %v, %v", r, err)
	}
	s.wantMemory(t, "a", 1, "about a") // sources stay
}
