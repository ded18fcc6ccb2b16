package api

import (
	"net/http"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs"
)

// clearConversation serves POST /api/v1/conversations/{id}/clear: the conversation
// begins anew. Whoever names the epoch can send the request again without clearing
// what was said since.
func (a *API) clearConversation(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	conversation := r.PathValue("conversation")
	if !event.ValidID(conversation) {
		return fault.New(fault.NotFound, "api.clear")
	}
	var b struct {
		AgentID string  `json:"agent_id"`
		Epoch   *uint32 `json:"epoch,omitempty"`
	}
	if err := decode(w, r, &b); err != nil {
		return err
	}
	if err := a.mayAsk(r, caller, b.AgentID, conversation); err != nil {
		return err
	}
	c, err := a.cfg.Runs.Clear(r.Context(), caller, b.AgentID, conversation, b.Epoch)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		BindingID string `json:"binding_id"`
		Epoch     uint32 `json:"epoch"`
	}{c.BindingID, c.Epoch})
}
