package api

import (
	"encoding/json"
	"net/http"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs"
)

// resumeBody is a decision: exactly one of form, dismiss and tool_decisions.
type resumeBody struct {
	InterruptID string         `json:"interrupt_id"`
	Revision    uint64         `json:"revision"`
	Form        event.Object   `json:"form,omitempty"`
	Dismiss     bool           `json:"dismiss,omitempty"`
	Tools       []toolDecision `json:"tool_decisions,omitempty"`
}

type toolDecision struct {
	ToolCallID string         `json:"tool_call_id"`
	Decision   event.Decision `json:"decision"`
	Arguments  event.Object   `json:"arguments,omitempty"`
}

func (b resumeBody) check() error {
	switch {
	case !event.ValidID(b.InterruptID):
		return fault.New(fault.InvalidRequest, "api.resume", fault.Detail("interrupt_id: required, "+idRule))
	case b.Revision == 0:
		return fault.New(fault.InvalidRequest, "api.resume", fault.Detail("revision: required, as interrupt-state gives it"))
	default:
		return nil
	}
}

func (b resumeBody) decision() event.ResumeDecision {
	d := event.ResumeDecision{Form: b.Form, Dismiss: b.Dismiss}
	for _, t := range b.Tools {
		d.Tools = append(d.Tools, event.ToolDecision(t))
	}
	return d
}

// resumeRun serves POST /api/v1/runs/{run_id}:resume, where the run is the one
// that was interrupted; the answer names the new one. The same decision again
// gets the same answer.
func (a *API) resumeRun(w http.ResponseWriter, r *http.Request, caller runs.Caller, id string) error {
	var b resumeBody
	if err := decode(w, r, &b); err != nil {
		return err
	}
	if err := b.check(); err != nil {
		return err
	}
	status, err := a.cfg.Runs.Status(r.Context(), caller, id)
	if err != nil {
		return err
	}
	if err := a.mayInvoke(r, caller, status.AgentID); err != nil {
		return err
	}
	started, err := a.cfg.Runs.Resume(r.Context(), caller, runs.ResumeRequest{
		RunID: id, InterruptID: b.InterruptID, Revision: b.Revision, Decision: b.decision(),
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusAccepted, startedBody{started.RunID, started.BindingID, started.Epoch})
}

// interruptState serves GET /api/v1/conversations/{id}/interrupt-state?agent_id=.
// "interrupt" is null where the conversation waits for nothing.
func (a *API) interruptState(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	conversation := r.PathValue("conversation")
	agentID, _, err := parameter(r, "agent_id")
	switch {
	case err != nil:
		return err
	case !event.ValidID(conversation):
		return fault.New(fault.NotFound, "api.interruptState")
	case !event.ValidID(agentID):
		return fault.New(fault.InvalidRequest, "api.interruptState", fault.Detail("agent_id: required"))
	}
	if err := a.mayInvoke(r, caller, agentID); err != nil {
		return err
	}
	p, err := a.cfg.Runs.PendingInterrupt(r.Context(), caller, agentID, conversation)
	if err != nil {
		return err
	}
	var out struct {
		RunID     string          `json:"run_id,omitempty"`
		Revision  uint64          `json:"revision,omitempty"`
		Interrupt json.RawMessage `json:"interrupt"`
	}
	if p != nil {
		out.RunID, out.Revision = p.RunID, p.Revision
		if out.Interrupt, err = event.InterruptBody(p.Interrupt); err != nil {
			return fault.Wrap(err, fault.Internal, "api.interruptState")
		}
	}
	return writeJSON(w, http.StatusOK, out)
}
