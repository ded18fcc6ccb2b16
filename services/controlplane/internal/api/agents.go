package api

import (
	"encoding/json"
	"net/http"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/harnesses"
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
	all, err := a.cfg.Agents.List(r.Context())
	if err != nil {
		return err
	}
	out := []agentBody{}
	for _, ag := range all {
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

// getAgent serves GET /api/v1/agents/{id}?version=N to operators: everything of the
// newest version, or of another.
func (a *API) getAgent(w http.ResponseWriter, r *http.Request, _ runs.Caller) error {
	version, err := number(r, "version", 0, 1, 1<<32-1)
	if err != nil {
		return err
	}
	id := r.PathValue("agent")
	var ag agents.Agent
	if version == 0 {
		ag, err = a.cfg.Agents.Newest(r.Context(), id)
	} else {
		ag, err = a.cfg.Agents.At(r.Context(), id, uint32(version)) //nolint:gosec // bounded above
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, ag)
}

// putAgent serves PUT /api/v1/agents/{id} to operators: the next version of an
// agent. What getAgent gave can be sent back with its changes.
func (a *API) putAgent(w http.ResponseWriter, r *http.Request, _ runs.Caller) error {
	const op = "api.putAgent"
	raw, err := body(w, r)
	if err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := badJSON(strictjson.Unmarshal(raw, &members, strictjson.Options{MaxBytes: agents.MaxBytes})); err != nil {
		return err
	}
	var expected *uint32
	if e, there := members["expected_version"]; there {
		if err := json.Unmarshal(e, &expected); err != nil {
			expected = nil
		}
	}
	if expected == nil {
		return fault.New(fault.InvalidRequest, op, fault.Detail("expected_version: required, the newest version that there is, 0 for a new agent"))
	}
	delete(members, "expected_version")
	rest, err := json.Marshal(members)
	if err != nil {
		return fault.Wrap(err, fault.Internal, op)
	}
	d, err := agents.NewDraft(r.PathValue("agent"), rest)
	if err != nil {
		return badJSON(err)
	}
	if given := d.Given(); given.ID != "" && given.ID != r.PathValue("agent") || given.Version != 0 && given.Version != *expected {
		return fault.New(fault.InvalidRequest, op, fault.Detail("agent_id, version: those of the path and of expected_version, or left out"))
	}
	ag, err := a.cfg.Agents.Put(r.Context(), d, *expected)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, ag)
}

// listHarnesses serves GET /api/v1/harnesses: what agents can be made for, with the
// schema of its options and the levels of its capabilities.
func (a *API) listHarnesses(w http.ResponseWriter, _ *http.Request, _ runs.Caller) error {
	return writeJSON(w, http.StatusOK, struct {
		Harnesses []harnesses.Entry `json:"harnesses"`
	}{a.cfg.Harnesses.All()})
}
