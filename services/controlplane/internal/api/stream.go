package api

import (
	"context"
	"net/http"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agui"
	"cofferdam.dev/services/controlplane/internal/runs"
)

// streamRun serves a run's events by SSE: what is committed, then what comes,
// until the terminal. A reader that is slow reads the log at its own pace; one
// that goes away changes nothing, but for the first one of a run that awaits it.
func (a *API) streamRun(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	id, err := runID(r.PathValue("run"))
	if err != nil {
		return err
	}
	from, err := fromSequence(r, r.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	protocol, _, err := parameter(r, "protocol")
	if err != nil {
		return err
	}
	status, err := a.cfg.Runs.Status(r.Context(), caller, id) // not_found must come before the stream begins
	if err != nil {
		return err
	}
	// Each encoding is made from the first event on: what opens stands before what
	// goes on.
	var open func(context.Context, *sse) stream
	o := runs.FollowOptions{}
	switch protocol {
	case "", "canonical":
		o.From = from // it needs nothing of what came before
		open = func(_ context.Context, out *sse) stream { return canonicalStream{out, from} }
	case protocolAGUI:
		enc := agui.NewEncoder(status.ConversationID, status.RunID, agui.Resumes(status.AskedBy, status.Carried))
		open = func(ctx context.Context, out *sse) stream { return a.aguiStream(ctx, caller, id, out, enc, from) }
	case protocolCustom:
		open = func(ctx context.Context, out *sse) stream {
			return a.customStream(ctx, caller, id, status.Carried, out, from)
		}
	default:
		return fault.New(fault.InvalidRequest, "api.streamRun", fault.Detail("protocol: canonical, agui or custom"))
	}
	if err := status.EventsKept(); err != nil {
		return err
	}
	if status.AwaitsStream {
		own, err := a.cfg.Runs.TakeStream(r.Context(), caller, id)
		if err != nil {
			return err
		}
		if own {
			return a.streamOwn(w, r, caller, id, true, open)
		}
	}
	out, err := a.newSSE(w)
	if err != nil {
		return nil //nolint:nilerr // the client has gone before the first byte
	}
	a.broken(r, a.follow(r, caller, id, out, open(r.Context(), out), o))
	return nil
}

// broken ends a stream that could not be brought to its terminal by a reset, so
// that no client takes it for whole.
func (a *API) broken(r *http.Request, err error) {
	if err == nil {
		return
	}
	if r.Context().Err() == nil {
		a.cfg.Logger.WarnContext(r.Context(), "stream ended before its terminal", "error", err.Error())
	}
	panic(http.ErrAbortHandler)
}
