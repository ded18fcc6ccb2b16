package api

import (
	"context"
	"net/http"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agui"
	"cofferdam.dev/services/controlplane/internal/runs"
)

// runAGUI starts a run, or resumes one, and streams it in one request, as AG-UI's
// HttpAgent does. When that client goes away, or falls too far behind, the run is
// cancelled.
func (a *API) runAGUI(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	agent := r.PathValue("agent")
	if !event.ValidID(agent) {
		return fault.New(fault.InvalidRequest, "api.runAGUI", fault.Detail("agent_id: "+idRule))
	}
	if err := a.mayInvoke(r, caller, agent); err != nil {
		return err
	}
	raw, err := body(w, r)
	if err != nil {
		return err
	}
	in, err := agui.ParseInput(raw)
	if err != nil {
		return err
	}
	var started runs.Started
	if in.Interrupt() == "" {
		started, err = a.startAGUI(r, caller, agent, in)
	} else {
		started, err = a.resumeAGUI(r, caller, agent, in)
	}
	if err != nil {
		return err
	}
	enc := agui.NewEncoder(in.ThreadID, in.RunID, agui.Echo(in), agui.Resumes(started.AskedBy, started.Carried))
	return a.streamOwn(w, r, caller, started.RunID, started.New, func(ctx context.Context, out *sse) stream {
		return a.aguiStream(ctx, caller, started.RunID, out, enc, 0)
	})
}

func (a *API) startAGUI(r *http.Request, caller runs.Caller, agent string, in agui.Input) (runs.Started, error) {
	req, err := startBody{AgentID: agent, ConversationID: in.ThreadID, Message: in.Message, ClientContext: in.Context}.request()
	if err != nil {
		return runs.Started{}, err
	}
	req.IdempotencyKey = in.RunID // a client that sends its request again gets its run again
	return a.cfg.Runs.Start(r.Context(), caller, req)
}

// resumeAGUI carries out what a client answers. AG-UI names no revision: an id of
// an interrupt is that of one question only.
func (a *API) resumeAGUI(r *http.Request, caller runs.Caller, agent string, in agui.Input) (runs.Started, error) {
	asked, err := a.cfg.Runs.Interrupt(r.Context(), caller, agent, in.ThreadID, in.Interrupt())
	if err != nil {
		return runs.Started{}, err
	}
	decision, err := in.Decision(asked.Interrupt)
	if err != nil {
		return runs.Started{}, err
	}
	return a.cfg.Runs.Resume(r.Context(), caller, runs.ResumeRequest{
		RunID: asked.RunID, InterruptID: asked.Interrupt.InterruptID, Revision: asked.Revision, Decision: decision,
	})
}
