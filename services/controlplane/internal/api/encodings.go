package api

import (
	"context"
	"encoding/json"
	"net/http"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agui"
	"cofferdam.dev/services/controlplane/internal/customsse"
	"cofferdam.dev/services/controlplane/internal/runs"
)

// The public encodings beside the canonical one.
const (
	protocolAGUI   = "agui"
	protocolCustom = "custom"
)

// stream writes the frames of one run.
type stream interface {
	// take writes those of the next event.
	take(sequence uint64, raw json.RawMessage) error
}

func (a *API) follow(r *http.Request, caller runs.Caller, id string, out *sse, s stream, o runs.FollowOptions) error {
	o.Flush, o.Idle, o.IdleEvery = out.flush, out.comment, a.cfg.IdleComment
	err := a.cfg.Runs.Follow(r.Context(), caller, id, o, s.take)
	if err != nil {
		_ = out.flush() // what was written before the error is good
	}
	return err
}

// revision reads the revision of a run's interrupt, which is there once that is
// committed.
func (a *API) revision(ctx context.Context, caller runs.Caller, id string) func() (uint64, error) {
	return func() (uint64, error) {
		status, err := a.cfg.Runs.Status(ctx, caller, id)
		return status.DurableRevision, err
	}
}

// canonicalStream writes the events as they are, from one on.
type canonicalStream struct {
	out  *sse
	from uint64
}

func (s canonicalStream) take(seq uint64, raw json.RawMessage) error {
	var head struct {
		Type event.Type `json:"type"`
	}
	if seq < s.from {
		return nil
	}
	if err := json.Unmarshal(raw, &head); err != nil || head.Type == event.TypeProviderMetadata {
		return err
	}
	return s.out.frame(&seq, string(head.Type), raw)
}

// customStream is one custom stream from an event on.
type customStream struct {
	out      *sse
	enc      *customsse.Encoder
	from     uint64
	revision func() (uint64, error)
}

func (a *API) customStream(ctx context.Context, caller runs.Caller, id string, carried []event.Carried, out *sse, from uint64) *customStream {
	return &customStream{out: out, enc: customsse.NewEncoder(carried), from: from, revision: a.revision(ctx, caller, id)}
}

// take writes the frames of the next event of the run. Only the last one has the
// id: a client that comes back after it has all of the event.
func (s *customStream) take(seq uint64, raw json.RawMessage) error {
	e, err := decodeEvent(raw, s.revision, s.enc.SetRevision)
	if err != nil {
		return err
	}
	frames, err := s.enc.Encode(e)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "api.custom")
	}
	if seq < s.from {
		return nil
	}
	for i, f := range frames {
		var last *uint64
		if i == len(frames)-1 {
			last = &seq
		}
		if err := s.out.frame(last, f.Event, f.Data); err != nil {
			return err
		}
	}
	return nil
}

// decodeEvent takes an event from the log; before a run.interrupted the encoder is
// told the revision.
func decodeEvent(raw json.RawMessage, revision func() (uint64, error), set func(uint64)) (event.Event, error) {
	var e event.Event
	if err := json.Unmarshal(raw, &e); err != nil {
		return e, fault.Wrap(err, fault.Internal, "api.stream")
	}
	if e.Type() == event.TypeRunInterrupted {
		n, err := revision()
		if err != nil {
			return e, err
		}
		set(n)
	}
	return e, nil
}

// aguiStream is one AG-UI stream from an event on. Such a stream always begins at
// RUN_STARTED: a client that comes back names what it has, and gets what is open
// and then the rest after it.
type aguiStream struct {
	out  *sse
	enc  *agui.Encoder
	from uint64
	// joined: the client has everything that came before.
	joined bool
	// revision is the one of the run's interrupt, once that is committed.
	revision func() (uint64, error)
}

func (a *API) aguiStream(ctx context.Context, caller runs.Caller, id string, out *sse, enc *agui.Encoder, from uint64) *aguiStream {
	return &aguiStream{out: out, enc: enc, from: from, joined: from == 0, revision: a.revision(ctx, caller, id)}
}

// take writes the next event of the run. RUN_STARTED and the terminal are always
// written: no such stream is without them.
func (s *aguiStream) take(seq uint64, raw json.RawMessage) error {
	e, err := decodeEvent(raw, s.revision, s.enc.SetRevision)
	if err != nil {
		return err
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
