package api

import (
	"encoding/json"
	"net/http"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agui"
	"cofferdam.dev/services/controlplane/internal/runs"
)

// streamRun serves a run's events by SSE: what is committed, then what comes,
// until the terminal. A reader that is slow reads the log at its own pace; one
// that goes away changes nothing.
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
	switch protocol {
	case "", "canonical":
		return a.streamCanonical(w, r, caller, id, from)
	case "agui":
		return a.streamAGUI(w, r, caller, status, from)
	case "custom":
		return fault.New(fault.NotImplemented, "api.streamRun", fault.Detail("protocol: custom"))
	default:
		return fault.New(fault.InvalidRequest, "api.streamRun", fault.Detail("protocol: canonical, agui or custom"))
	}
}

func (a *API) streamCanonical(w http.ResponseWriter, r *http.Request, caller runs.Caller, id string, from uint64) error {
	out, err := a.newSSE(w)
	if err != nil {
		return nil //nolint:nilerr // the client has gone before the first byte
	}
	err = a.cfg.Runs.Follow(r.Context(), caller, id, runs.FollowOptions{From: from, Idle: out.comment, IdleEvery: a.cfg.IdleComment},
		func(seq uint64, raw json.RawMessage) error {
			var head struct {
				Type event.Type `json:"type"`
			}
			if err := json.Unmarshal(raw, &head); err != nil || head.Type == event.TypeProviderMetadata {
				return err
			}
			return out.frame(&seq, string(head.Type), raw)
		})
	a.broken(r, err)
	return nil
}

// streamAGUI replays a run as AG-UI. Such a stream always begins at RUN_STARTED:
// a client that comes back names what it has, and gets what is open and then the
// rest after it.
func (a *API) streamAGUI(w http.ResponseWriter, r *http.Request, caller runs.Caller, s runs.Status, from uint64) error {
	out, err := a.newSSE(w)
	if err != nil {
		return nil //nolint:nilerr // the client has gone before the first byte
	}
	enc := agui.NewEncoder(s.ConversationID, s.RunID, agui.Resumes(s.AskedBy, s.Carried))
	a.broken(r, a.followAGUI(r, caller, s.RunID, out, enc, runs.FollowOptions{}, from))
	return nil
}

// followAGUI writes a run from an event on. It is encoded from the first event
// on, since what opens stands before what goes on.
func (a *API) followAGUI(r *http.Request, caller runs.Caller, id string, out *sse, enc *agui.Encoder, o runs.FollowOptions, from uint64) error {
	o.From, o.Idle, o.IdleEvery = 0, out.comment, a.cfg.IdleComment
	ctx := r.Context()
	s := aguiStream{out: out, enc: enc, from: from, joined: from == 0, revision: func() (uint64, error) {
		status, err := a.cfg.Runs.Status(ctx, caller, id)
		return status.DurableRevision, err
	}}
	return a.cfg.Runs.Follow(ctx, caller, id, o, s.take)
}

// aguiStream is one AG-UI stream from an event on.
type aguiStream struct {
	out  *sse
	enc  *agui.Encoder
	from uint64
	// joined: the client has everything that came before.
	joined bool
	// revision is the one of the run's interrupt, once that is committed.
	revision func() (uint64, error)
}

// take writes the next event of the run. RUN_STARTED and the terminal are always
// written: no such stream is without them.
func (s *aguiStream) take(seq uint64, raw json.RawMessage) error {
	var e event.Event
	if err := json.Unmarshal(raw, &e); err != nil {
		return fault.Wrap(err, fault.Internal, "api.agui")
	}
	if e.Type() == event.TypeRunInterrupted {
		revision, err := s.revision()
		if err != nil {
			return err
		}
		s.enc.SetRevision(revision)
	}
	id, skip := seq, false
	switch {
	case s.joined:
	case seq == 0:
		id = s.from - 1 // a client that is dropped now still knows where it was
	case seq >= s.from || e.Type().Terminal():
		s.joined = true
		if err := s.write(nil, s.enc.Reopen); err != nil {
			return err
		}
	default:
		skip = true
	}
	if skip {
		if _, err := s.enc.Encode(e); err != nil {
			return fault.Wrap(err, fault.Internal, "api.agui")
		}
		return nil
	}
	return s.write(&id, func() ([][]byte, error) { return s.enc.Encode(e) })
}

// write writes frames. Only the last one has the id: a client that comes back
// after it has all of the event.
func (s *aguiStream) write(id *uint64, encode func() ([][]byte, error)) error {
	frames, err := encode()
	if err != nil {
		return fault.Wrap(err, fault.Internal, "api.agui")
	}
	for i, f := range frames {
		var last *uint64
		if i == len(frames)-1 {
			last = id
		}
		if err := s.out.frame(last, "", f); err != nil {
			return err
		}
	}
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
