package api_test

import (
	"net/http"
	"testing"

	"cofferdam.dev/pkg/authz"
)

// A caller sees the agents that it may use, and no others.
func TestListAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	var got struct {
		Agents []struct {
			AgentID string `json:"agent_id"`
			Version uint32
			Harness string
			Tools   []string
		}
	}
	f.get(t, "/api/v1/agents").json(t, &got)
	if len(got.Agents) != 1 || got.Agents[0].AgentID != "demo" || got.Agents[0].Version == 0 || got.Agents[0].Harness == "" || got.Agents[0].Tools == nil {
		t.Errorf("%+v", got)
	}
	f.grants.revoke("user-1", authz.CanInvoke, authz.AgentID("demo"))
	if a := f.get(t, "/api/v1/agents"); a.status != http.StatusOK || string(a.body) != `{"agents":[]}`+"\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
}
