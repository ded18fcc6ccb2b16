package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agui"
	"cofferdam.dev/services/controlplane/internal/runs"
)

const (
	// maxBehind is how far the request that started a run may fall behind before
	// the run is cancelled.
	maxBehind = 8 << 20
	maxLag    = 30 * time.Second
	// disconnectTimeout bounds the cancel of a run whose client went away.
	disconnectTimeout = 20 * time.Second
)

// runAGUI starts a run and streams it in one request, as AG-UI's HttpAgent
// does. When that client goes away, or falls too far behind, the run is
// cancelled.
func (a *API) runAGUI(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	agent := r.PathValue("agent")
	if !event.ValidID(agent) {
		return fault.New(fault.InvalidRequest, "api.runAGUI", fault.Detail("agent_id: 1 to 128 characters of [A-Za-z0-9._:-]"))
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
	req, err := startBody{AgentID: agent, ConversationID: in.ThreadID, Message: in.Message, ClientContext: in.Context}.request()
	if err != nil {
		return err
	}
	req.IdempotencyKey = in.RunID // a client that sends its request again gets its run again
	started, err := a.cfg.Runs.Start(r.Context(), caller, req)
	if err != nil {
		return err
	}
	out, err := a.newSSE(w)
	if err == nil {
		enc := agui.NewEncoder(in.ThreadID, in.RunID, agui.Echo(in))
		err = a.followAGUI(r, caller, started.RunID, out, enc, runs.FollowOptions{MaxBehind: maxBehind, MaxLag: maxLag, Interrupt: out.interrupt}, 0)
	}
	if err != nil && started.New {
		a.disconnected(r, caller, started.RunID, errors.Is(err, runs.ErrBehind))
	}
	a.broken(r, err)
	return nil
}

// disconnected cancels a run whose client is gone or too slow.
func (a *API) disconnected(r *http.Request, caller runs.Caller, id string, behind bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), disconnectTimeout)
	defer cancel()
	a.cfg.Logger.InfoContext(ctx, "client of a run went away; the run is cancelled", "behind", behind)
	if _, err := a.cfg.Runs.Cancel(ctx, caller, id, event.CancelledByDisconnect); err != nil {
		a.cfg.Logger.WarnContext(ctx, "run could not be cancelled", "error", err.Error())
	}
}
