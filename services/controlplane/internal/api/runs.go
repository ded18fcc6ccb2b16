package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs"
)

type statusBody struct {
	RunID           string          `json:"run_id"`
	BindingID       string          `json:"binding_id"`
	Epoch           uint32          `json:"epoch"`
	Generation      uint32          `json:"lease_generation"`
	AgentID         string          `json:"agent_id"`
	ConversationID  string          `json:"conversation_id"`
	State           string          `json:"state"`
	End             string          `json:"end,omitempty"`
	EndReason       string          `json:"end_reason,omitempty"`
	Events          uint64          `json:"events"`
	DurableRevision uint64          `json:"durable_revision"`
	SideEffects     string          `json:"side_effect_status,omitempty"`
	StartedAt       time.Time       `json:"started_at"`
	Deadline        time.Time       `json:"deadline,omitzero"`
	EndedAt         time.Time       `json:"ended_at,omitzero"`
	Terminal        json.RawMessage `json:"terminal,omitempty"`
}

func (a *API) getRun(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	id, err := runID(r.PathValue("run"))
	if err != nil {
		return err
	}
	s, err := a.cfg.Runs.Status(r.Context(), caller, id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, statusBody{
		RunID: s.RunID, BindingID: s.BindingID, Epoch: s.Epoch, Generation: s.Generation, AgentID: s.AgentID,
		ConversationID: s.ConversationID, State: s.State, End: s.End, EndReason: s.EndReason, Events: s.Events,
		DurableRevision: s.DurableRevision, SideEffects: s.SideEffects, StartedAt: s.StartedAt, Deadline: s.Deadline,
		EndedAt: s.EndedAt, Terminal: s.Terminal,
	})
}

// runAction serves POST /api/v1/runs/{run_id}:cancel and :resume. A colon within
// a path segment is no pattern of net/http, so the segment is taken apart here.
func (a *API) runAction(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	segment := r.PathValue("run")
	colon := strings.LastIndexByte(segment, ':')
	if colon < 0 {
		return unknown(w, r, caller)
	}
	id, err := runID(segment[:colon])
	if err != nil {
		return err
	}
	switch segment[colon+1:] {
	case "cancel":
		return a.cancelRun(w, r, caller, id)
	case "resume":
		return a.starting(func(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
			return a.resumeRun(w, r, caller, id)
		})(w, r, caller)
	default:
		return unknown(w, r, caller)
	}
}

func (a *API) cancelRun(w http.ResponseWriter, r *http.Request, caller runs.Caller, id string) error {
	if r.ContentLength != 0 {
		var nothing struct{}
		if err := decode(w, r, &nothing); err != nil {
			return err
		}
	}
	c, err := a.cfg.Runs.Cancel(r.Context(), caller, id, event.CancelledByClient)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, cancelledBody{c.Cancelled, c.RunID, c.Confirmed, c.SideEffectStatus})
}

// cancelledBody says what was confirmed of a cancel.
type cancelledBody struct {
	Cancelled   bool   `json:"cancelled"`
	RunID       string `json:"run_id,omitempty"`
	Confirmed   bool   `json:"confirmed"`
	SideEffects string `json:"side_effect_status"`
}

func runID(s string) (string, error) {
	if !event.ValidID(s) {
		return "", fault.New(fault.NotFound, "api.runID")
	}
	return s, nil
}
