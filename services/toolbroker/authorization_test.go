package toolbroker

import (
	"testing"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/authz/openfgaauthz"
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/toolbroker/internal/call"
)

// What the capability names exactly may be called, and nothing else, whatever
// OpenFGA says.
func TestOnlyTheCapabilitysToolsAreCalled(t *testing.T) {
	s := newSession(t)
	for _, allowed := range [][]string{{}, {"x.echo"}, {"x.coun"}, {"x.count2"}, {"X.count"}, {"x.echo", "r.count"}} {
		s.allowed = allowed
		_, err := s.call(t, "x.count", `{}`)
		wantCode(t, err, fault.ToolNotAllowed)
	}
	s.allowed = []string{"x.echo", "x.count", "x.secret"}
	_, err := s.call(t, "x.count", `{}`)
	must(t, err)
	if got := s.count(t); len(got) != 1 {
		t.Errorf("effects: %v", got)
	}
}

func TestTheSubjectOfTheRecordIsAuthorized(t *testing.T) {
	s := newSession(t)
	_, err := s.call(t, "x.count", `{}`)
	must(t, err)

	// Not this tool, or not through this agent.
	for _, object := range []string{authz.ToolID("x.count"), agent} {
		s.grants.forbid(t, subject, object)
		_, err := s.call(t, "x.count", `{}`)
		wantCode(t, err, fault.ToolDenied)
		s.grants.allow(t, subject, object)
	}
	_, err = s.call(t, "x.count", `{}`)
	must(t, err)

	// Somebody else's run has somebody else's rights.
	other := s.stand.Another(t, func(id *binding.Identity) { id.Subject = "*" })
	_, err = s.callAs(t.Context(), other.Envelope(), "x.count", `{}`)
	wantCode(t, err, fault.ToolDenied)

	// A right of an organization reaches its members alone.
	s.grants.write(t, "writes", authz.OrganizationMembers("org-1"), []string{authz.ToolID("x.count"), agent})
	s.grants.forbid(t, subject, authz.ToolID("x.count"), agent)
	_, err = s.call(t, "x.count", `{}`)
	wantCode(t, err, fault.ToolDenied)
	s.grants.post(t, "/stores/"+s.grants.store+"/write", map[string]any{"writes": map[string]any{"tuple_keys": []map[string]string{
		{"user": subject, "relation": authz.Member, "object": authz.OrganizationID("org-1")},
	}}})
	_, err = s.call(t, "x.count", `{}`)
	must(t, err)
	if got := s.count(t); len(got) != 3 {
		t.Errorf("effects: %v", got)
	}
}

// A revocation holds for the very next call (openfga 2811), also for one that
// would only be answered from the ledger.
func TestARevocationHoldsAtOnce(t *testing.T) {
	s := newSession(t)
	for range 20 {
		e := s.stand.Envelope()
		_, err := s.callAs(t.Context(), e, "x.count", `{}`)
		must(t, err)
		s.grants.forbid(t, subject, authz.ToolID("x.count"))
		_, err = s.callAs(t.Context(), e, "x.count", `{}`)
		wantCode(t, err, fault.ToolDenied)
		s.grants.allow(t, subject, authz.ToolID("x.count"))
	}
	if got := s.count(t); len(got) != 20 {
		t.Errorf("effects: %v", got)
	}
}

// OpenFGA down, or asked with the wrong key, model or store, is a refusal, and
// nothing of the call is written.
func TestNoDecisionIsARefusal(t *testing.T) {
	s := newSession(t)
	right := s.grants.config()
	for name, change := range map[string]func(*openfgaauthz.Config){
		"nobody there":    func(c *openfgaauthz.Config) { c.URL = "http://127.0.0.1:1" },
		"no key":          func(c *openfgaauthz.Config) { c.KeyFile = "" },
		"unknown store":   func(c *openfgaauthz.Config) { c.StoreID = "01JABCDEFGHJKMNPQRSTVWXYZ0" },
		"unknown model":   func(c *openfgaauthz.Config) { c.ModelID = "01JABCDEFGHJKMNPQRSTVWXYZ0" },
		"another's model": func(c *openfgaauthz.Config) { c.ModelID = newGrants(t).model },
	} {
		cfg := right
		change(&cfg)
		authorizer, err := openfgaauthz.New(cfg)
		must(t, err)
		writer := binding.NewWriter(s.stand.Backend, time.Now)
		before := len(s.stand.Rows(t))
		_, err = call.New(call.Config{
			Tools: s.service.catalogue, Records: s.stand.Backend, Effects: binding.NewEffects(writer), Authorizer: authorizer, Logger: s.stand.Logger,
		}).Call(t.Context(), call.Request{
			Grant: s.stand.Grant(t, s.stand.Envelope()), Allowed: []string{"x.count"}, ToolID: "x.count", Arguments: []byte(`{}`),
		})
		if fault.CodeOf(err) != fault.DependencyUnavailable {
			t.Errorf("%s: %v", name, err)
		}
		if after := len(s.stand.Rows(t)); after != before {
			t.Errorf("%s: a row was written", name)
		}
	}
	if got := s.count(t); len(got) != 0 {
		t.Errorf("effects: %v", got)
	}
}
