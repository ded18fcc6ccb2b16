package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/controlplane/internal/runs"
)

const (
	// maxBehind and maxLag are how far the request that started a run may fall behind
	// before the run is cancelled, where Config says nothing.
	maxBehind = 8 << 20
	maxLag    = 30 * time.Second
	// disconnectTimeout bounds the cancel of a run whose client went away.
	disconnectTimeout = 20 * time.Second
)

// streamOwn streams a run to the request that it belongs to, if it is owned: the one
// that started it, or its first stream where it awaits one. When that client goes
// away, or falls too far behind, the run is cancelled. A request that is repeated owns
// nothing, and is not_found where the events are not kept any more.
func (a *API) streamOwn(w http.ResponseWriter, r *http.Request, caller runs.Caller, id string, own bool, open func(context.Context, *sse) stream) error {
	if !own {
		if err := a.eventsKept(r.Context(), caller, id); err != nil {
			return err
		}
	}
	out, err := a.newSSE(w)
	if err == nil {
		o := runs.FollowOptions{}
		if own {
			o = runs.FollowOptions{MaxBehind: a.cfg.MaxBehind, MaxLag: a.cfg.MaxLag, Interrupt: out.interrupt}
		}
		err = a.follow(r, caller, id, out, open(r.Context(), out), o)
	}
	if err != nil && own {
		a.disconnected(r, caller, id, errors.Is(err, runs.ErrBehind))
	}
	a.broken(r, err)
	return nil
}

func (a *API) eventsKept(ctx context.Context, caller runs.Caller, id string) error {
	status, err := a.cfg.Runs.Status(ctx, caller, id)
	if err != nil {
		return err
	}
	return status.EventsKept()
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
