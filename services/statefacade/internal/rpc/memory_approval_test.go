package rpc_test

import (
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/statefacade/internal/memory"
)

const (
	putTool    = "cofferdam.memory_put"
	deleteTool = "cofferdam.memory_delete"
)

// sensitive is a policy that has a person asked about what tells an agent how to work.
var sensitive = memory.Policy{Approval: map[memory.Scope][]memory.Kind{memory.ScopeUser: {memory.KindProcedural}}}

// approved is the grant of a call with these arguments, as the control plane
// makes it of what a person was shown.
func approved(t *testing.T, callID, tool, arguments string) binding.Carried {
	t.Helper()
	canonical, err := strictjson.Canonical([]byte(arguments), strictjson.Options{})
	must(t, err)
	return binding.Carried{ToolCallID: callID, Decision: "approve", ArgsDigest: binding.ToolCallDigest(tool, canonical)}
}

// called is the envelope of what a tool call asks for.
func (s *session) called(callID string) fence.Envelope {
	e := s.stand.Envelope()
	e.IdempotencyKey = fence.CallKey(fence.MemoryCalls, callID)
	return e
}

func (s *session) putFor(t *testing.T, callID, key, content string, kind memoryv1.Kind, expected *uint64, change ...func(*memoryv1.PutRequest)) (*memoryv1.PutResponse, error) {
	t.Helper()
	e := s.called(callID)
	req := putRequest(e.Proto(), key, content, expected)
	req.Kind, req.ToolCallId = kind, callID
	for _, c := range change {
		c(req)
	}
	return s.memory.Put(s.ctx(t, e), req)
}

func (s *session) deleteFor(t *testing.T, callID, key string, revision uint64) error {
	t.Helper()
	e := s.called(callID)
	_, err := s.memory.Delete(s.ctx(t, e), &memoryv1.DeleteRequest{
		Envelope: e.Proto(), Scope: memoryv1.Scope_SCOPE_USER, Key: key, ExpectedRevision: revision, ToolCallId: callID,
	})
	return err
}

const procedural, semantic = memoryv1.Kind_KIND_PROCEDURAL, memoryv1.Kind_KIND_SEMANTIC

// H7 for memory: what policy calls sensitive is stored with a person's approval
// of this very change, once, and without one never, whatever the worker says.
func TestPutThatNeedsApproval(t *testing.T) {
	s := newSessionWith(t, capability.Memory, sensitive)
	_, err := s.putFor(t, "call-0", "key", "free", semantic, nil)
	must(t, err)
	before := s.state(t)
	_, err = s.putFor(t, "call-1", "how", "do it so", procedural, nil)
	wantCode(t, err, fault.ApprovalRequired)
	e := s.stand.Envelope()
	req := putRequest(e.Proto(), "how", "do it so", nil)
	req.Kind = procedural
	_, err = s.memory.Put(s.ctx(t, e), req) // nobody can be asked about it
	wantCode(t, err, fault.ApprovalRequired)
	if s.state(t) != before || len(s.stand.Rows(t)) != 1 {
		t.Error("something was written")
	}

	s.stand.ResumeRun(t, approved(t, "call-1", putTool, `{"revision":0,"kind":"procedural","key":"how","content":"do it <so>\n","scope":"user"}`))
	for name, c := range map[string]struct {
		call, key, content string
		change             func(*memoryv1.PutRequest)
	}{
		"another content":      {"call-1", "how", "do it otherwise", func(*memoryv1.PutRequest) {}},
		"another key":          {"call-1", "why", "do it <so>\n", func(*memoryv1.PutRequest) {}},
		"another call":         {"call-2", "how", "do it <so>\n", func(*memoryv1.PutRequest) {}},
		"another content type": {"call-1", "how", "do it <so>\n", func(r *memoryv1.PutRequest) { r.ContentType = "application/json"; r.Content = []byte("{}") }},
		"another retention":    {"call-1", "how", "do it <so>\n", func(r *memoryv1.PutRequest) { r.Retention = "keep" }},
		"sources": {"call-1", "how", "do it <so>\n", func(r *memoryv1.PutRequest) {
			r.Sources = []*memoryv1.Source{{Key: "key", Revision: 1}}
		}},
	} {
		if _, err := s.putFor(t, c.call, c.key, c.content, procedural, nil, c.change); fault.CodeOf(err) != fault.ApprovalRequired {
			t.Errorf("%s: %v", name, err)
		}
	}
	for replayed := range 2 {
		res, err := s.putFor(t, "call-1", "how", "do it <so>\n", procedural, nil)
		if err != nil || res.GetRevision() != 1 || res.GetReplayed() != (replayed > 0) {
			t.Errorf("got %v, %v", res, err)
		}
	}
	entries, err := s.memories.Audit(t.Context(), s.namespace(t), "how")
	if err != nil || len(entries) != 1 || entries[0].Record.Origin.ApprovedCall != "call-1" {
		t.Errorf("the audit has %+v, %v", entries, err)
	}
}

// What is sensitive is not changed into what is not, and not deleted, without
// approval either.
func TestSensitiveRecordIsNotReplacedWithoutApproval(t *testing.T) {
	s := newSessionWith(t, capability.Memory, sensitive)
	s.stand.ResumeRun(t, approved(t, "call-1", putTool, `{"scope":"user","key":"how","kind":"procedural","content":"do it so","revision":0}`))
	_, err := s.putFor(t, "call-1", "how", "do it so", procedural, nil)
	must(t, err)
	before := s.state(t)
	_, err = s.putFor(t, "call-2", "how", "nothing", semantic, new(uint64(1)))
	wantCode(t, err, fault.ApprovalRequired)
	wantCode(t, s.deleteFor(t, "call-3", "how", 1), fault.ApprovalRequired)
	_, err = s.delete(t, s.stand.Envelope(), "how", 1)
	wantCode(t, err, fault.ApprovalRequired)
	// A revision that does not stand leads nowhere.
	_, err = s.putFor(t, "call-4", "how", "nothing", semantic, new(uint64(2)))
	wantCode(t, err, fault.MemoryRevisionConflict)
	if s.state(t) != before {
		t.Error("something was written")
	}
	s.stand.ResumeRun(t, approved(t, "call-5", deleteTool, `{"scope":"user","key":"how","revision":1}`))
	must(t, s.deleteFor(t, "call-5", "how", 1))
	wantCode(t, s.deleteFor(t, "call-5", "how", 2), fault.IdempotencyConflict)
}

// The defaults of the scopes that several people read.
func TestSharedScopesNeedApproval(t *testing.T) {
	policy := shared
	policy.Approval = nil
	s := newSessionWith(t, capability.Memory, policy)
	s.scopes = []string{"user", "agent", "organization"}
	for scope, want := range map[string]fault.Code{"user": "", "agent": fault.ApprovalRequired, "organization": fault.ApprovalRequired} {
		wantCode(t, s.in(t, scope, "content"), want)
	}
}
