package rpc_test

import (
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/services/statefacade/internal/memory"
)

// shared lets the runs of the Stand write everywhere, without being asked.
var shared = memory.Policy{
	SharedLearning: []string{"agent-1"},
	AgentSets:      []memory.AgentSet{{Name: "set", Agents: []string{"agent-1", "agent-2"}}},
	Administrators: []memory.Administrators{{Organization: "org-1", Subjects: []string{"user-1"}}},
	Approval:       map[memory.Scope][]memory.Kind{memory.ScopeAgent: {}, memory.ScopeOrganization: {}},
}

var scopes = map[string]memoryv1.Scope{
	"user": memoryv1.Scope_SCOPE_USER, "agent": memoryv1.Scope_SCOPE_AGENT, "organization": memoryv1.Scope_SCOPE_ORGANIZATION,
}

// in puts content under "key" of a scope.
func (s *session) in(t *testing.T, scope, content string) error {
	t.Helper()
	e := s.stand.Envelope()
	req := putRequest(e.Proto(), "key", content, nil)
	req.Scope = scopes[scope]
	_, err := s.memory.Put(s.ctx(t, e), req)
	return err
}

func (s *session) from(t *testing.T, scope string) (string, error) {
	t.Helper()
	e := s.stand.Envelope()
	res, err := s.memory.Get(s.ctx(t, e), &memoryv1.GetRequest{Envelope: e.Proto(), Scope: scopes[scope], Key: "key"})
	return string(res.GetRecord().GetContent()), err
}

// A scope that the capability does not name is closed, whatever the policy says.
func TestScopeOfTheCapability(t *testing.T) {
	s := newSessionWith(t, capability.Memory, shared)
	before := s.state(t)
	for scope := range scopes {
		for other := range scopes {
			if other != scope {
				s.scopes = []string{other}
				wantCode(t, s.in(t, scope, "content"), fault.MemoryScopeDenied)
				_, err := s.from(t, scope)
				wantCode(t, err, fault.MemoryScopeDenied)
				e := s.stand.Envelope()
				_, err = s.memory.Search(s.ctx(t, e), &memoryv1.SearchRequest{Envelope: e.Proto(), Scope: scopes[scope], Query: "content"})
				wantCode(t, err, fault.MemoryScopeDenied)
				_, err = s.memory.Delete(s.ctx(t, e), &memoryv1.DeleteRequest{Envelope: e.Proto(), Scope: scopes[scope], Key: "key", ExpectedRevision: 1})
				wantCode(t, err, fault.MemoryScopeDenied)
			}
		}
	}
	if s.state(t) != before || len(s.stand.Rows(t)) != 0 {
		t.Error("something was written")
	}
}

// The contract's defaults: user is written, agent and organization are read.
func TestDefaultScopes(t *testing.T) {
	s := newSession(t, capability.Memory)
	s.scopes = []string{"user", "agent", "organization"}
	policy := shared
	policy.AgentSets = nil
	for scope, want := range map[string]fault.Code{"user": "", "agent": fault.MemoryScopeDenied, "organization": fault.MemoryScopeDenied} {
		s.rememberedIn(t, policy, memory.Scope(scope), "other", "in "+scope)
		wantCode(t, s.in(t, scope, "content"), want)
		e := s.stand.Envelope()
		_, err := s.memory.Delete(s.ctx(t, e), &memoryv1.DeleteRequest{Envelope: e.Proto(), Scope: scopes[scope], Key: "other", ExpectedRevision: 1})
		wantCode(t, err, want)
		if found, err := s.find(t, scopes[scope], "in"); err != nil || (len(found) == 1) != (want != "") {
			t.Errorf("%s has %v, %v", scope, found, err)
		}
	}
}

// Who switched shared learning on, or is an administrator, is said by the
// operator's policy and by the committed identity.
func TestWhoWritesAScope(t *testing.T) {
	s := newSessionWith(t, capability.Memory, shared)
	s.scopes = []string{"agent", "organization"}
	for name, c := range map[string]struct {
		change              func(*binding.Identity)
		agent, organization fault.Code
	}{
		"another agent":        {func(id *binding.Identity) { id.AgentID = "agent-3" }, fault.MemoryScopeDenied, ""},
		"another subject":      {func(id *binding.Identity) { id.Subject = "user-2" }, "", fault.MemoryScopeDenied},
		"another organization": {func(id *binding.Identity) { id.Organization = "org-2" }, "", fault.MemoryScopeDenied},
		"no organization":      {func(id *binding.Identity) { id.Organization = "" }, "", fault.MemoryScopeDenied},
	} {
		t.Run(name, func(t *testing.T) {
			other := *s
			other.opened = &opened{stand: s.stand.Another(t, func(id *binding.Identity) {
				id.Environment = name
				c.change(id)
			})}
			wantCode(t, other.in(t, "agent", "content"), c.agent)
			wantCode(t, other.in(t, "organization", "content"), c.organization)
		})
	}
}

// The namespace is that of the committed identity: S2. Who has all of what a
// scope is made of in common shares it, and nobody else does.
func TestNamespaceIsComputedFromTheCommittedRun(t *testing.T) {
	s := newSessionWith(t, capability.Memory, shared)
	s.scopes = []string{"user", "agent", "organization"}
	for scope := range scopes {
		must(t, s.in(t, scope, "content in "+scope))
	}
	for name, c := range map[string]struct {
		change                    func(*binding.Identity)
		user, agent, organization bool
	}{
		"other conversation":        {func(id *binding.Identity) { id.ConversationID = "conversation-2" }, true, true, true},
		"other agent version":       {func(id *binding.Identity) { id.AgentVersion = 2 }, true, true, true},
		"other subject":             {func(id *binding.Identity) { id.Subject = "user-2" }, false, true, true},
		"other organization":        {func(id *binding.Identity) { id.Organization = "org-2" }, true, true, false},
		"other agent of the set":    {func(id *binding.Identity) { id.AgentID = "agent-2" }, false, false, true},
		"agent outside of the set":  {func(id *binding.Identity) { id.AgentID = "agent-3" }, false, false, false},
		"agent of the set's name":   {func(id *binding.Identity) { id.AgentID = "set" }, false, false, false},
		"other environment":         {func(id *binding.Identity) { id.Environment = "production" }, false, false, false},
		"parts that run together":   {func(id *binding.Identity) { id.Environment, id.AgentID, id.Subject = "testagent-1", "user-1", "" }, false, false, false},
		"subject of the agent's id": {func(id *binding.Identity) { id.Subject = "agent-1" }, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			other := *s
			other.opened = &opened{stand: s.stand.Another(t, c.change)}
			for scope, want := range map[string]bool{"user": c.user, "agent": c.agent, "organization": c.organization} {
				got, err := other.from(t, scope)
				if shares := err == nil && got == "content in "+scope; shares != want {
					t.Errorf("%s is shared: %v, want %v (%v)", scope, shares, want, err)
				}
				if found, err := other.find(t, scopes[scope], "content"); err == nil && (len(found) > 0) != want {
					t.Errorf("%s is found: %v, want %v", scope, found, want)
				}
			}
		})
	}
}
