package catalogue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/toolbroker/internal/call"
	"cofferdam.dev/services/toolbroker/internal/credential"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
	"cofferdam.dev/services/toolbroker/internal/persubject"
	"cofferdam.dev/services/toolbroker/internal/project"
)

// perSubject says that the server is called with a token of the subject's.
func (s Server) perSubject() bool {
	return s.Credential != nil && s.Credential.Source == SourceTokenExchange
}

// subjects makes the pool of the sessions of such a server.
func (c *overHTTP) subjects() (*persubject.Pool[peer], error) {
	source, err := c.cfg.Credential.source(c.cfg.Egress)
	if err != nil {
		return nil, err
	}
	return persubject.New(persubject.Config[peer]{
		Source: source, Now: time.Now,
		Connect: func(ctx context.Context, k *credential.Keeper) (peer, error) {
			p, err := c.connectWith(ctx, c.cfg.Credential, k)
			if err == nil && p.Version() >= mcpcall.Stateless {
				// Which arguments a tool wants in headers is known of a session that has
				// listed it.
				if _, err = p.Tools(ctx); err != nil {
					_ = p.Close() // it is of no use, whatever this says
				}
			}
			if err != nil { // the server may have quoted the subject's token
				return nil, errors.New(event.Truncate(event.SanitizeText(k.Redactor().Cut(err.Error())), maxReason))
			}
			return p, nil
		},
	}), nil
}

// session is a peer in use, and what is cut out of what it says.
type session struct {
	peer     peer
	redactor func() project.Redactor
	release  func()
}

// on gives the session to call the server in on somebody's behalf: the subject's
// own, where each has one. by bounds the making of one.
func (s *server) on(ctx context.Context, live peer, on call.Behalf, by time.Time) (session, error) {
	if s.subjects == nil {
		return session{live, s.connector.redactor, func() {}}, nil
	}
	if on.Subject == "" || on.Assert == nil {
		return session{}, fmt.Errorf("%w: it is nobody's call", call.ErrNotSent)
	}
	ctx = credential.WithAssert(ctx, on.Assert)
	if !by.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	held, err := s.subjects.Take(ctx, persubject.Subject{Organization: on.Organization, ID: on.Subject})
	switch {
	case errors.Is(err, persubject.ErrBusy):
		return session{}, fmt.Errorf("%w: %w: too many subjects at once", call.ErrNotSent, call.ErrBusy)
	case err != nil:
		return session{}, fmt.Errorf("%w: no session for the subject: %w", call.ErrNotSent, err)
	}
	return session{held.Session, held.Keeper.Redactor, held.Release}, nil
}

// Prepare implements call.Tool.
func (t *Tool) Prepare(ctx context.Context, on call.Behalf) {
	live := t.server.offers(t)
	if t.server.subjects == nil || live == nil {
		return
	}
	in, err := t.server.on(ctx, live, on, time.Time{})
	if err != nil {
		t.server.logger.WarnContext(ctx, "a subject's session could not be made", "tool_id", t.id, "reason", t.server.loggable(err))
		return
	}
	in.release()
}
