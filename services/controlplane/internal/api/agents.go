package api

import (
	"net/http"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs"
)

type agentBody struct {
	AgentID        string   `json:"agent_id"`
	Version        uint32   `json:"version"`
	Name           string   `json:"name,omitempty"`
	Harness        string   `json:"harness"`
	AdapterVersion string   `json:"adapter_version"`
	ModelAlias     string   `json:"model_alias"`
	Tools          []string `json:"tools"`
	ApproveTools   []string `json:"approve_tools,omitempty"`
}

// listAgents serves GET /api/v1/agents: the agents that the caller may use, by id.
// What only operators need to know, prompts and profiles, is not in it.
func (a *API) listAgents(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	out := []agentBody{}
	for _, ag := range a.cfg.Runs.Agents() {
		err := a.cfg.Authz.Check(r.Context(), caller.Subject, authz.CanInvoke, authz.AgentID(ag.ID))
		if fault.Is(err, fault.AccessDenied) {
			continue
		}
		if err != nil {
			return err
		}
		out = append(out, agentBody{ag.ID, ag.Version, ag.Name, ag.Harness, ag.AdapterVersion, ag.ModelAlias, append([]string{}, ag.Tools...), ag.ApproveTools})
	}
	return writeJSON(w, http.StatusOK, struct {
		Agents []agentBody `json:"agents"`
	}{out})
}
