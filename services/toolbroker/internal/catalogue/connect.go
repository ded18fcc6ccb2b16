package catalogue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"cofferdam.dev/services/toolbroker/internal/credential"
	"cofferdam.dev/services/toolbroker/internal/egress"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
	"cofferdam.dev/services/toolbroker/internal/mcphttp"
	"cofferdam.dev/services/toolbroker/internal/mcpstdio"
	"cofferdam.dev/services/toolbroker/internal/project"
)

// peer is a server that can be called, over whatever transport.
type peer interface {
	// Call calls a tool, see mcpcall.Peer.
	Call(ctx context.Context, tool string, arguments json.RawMessage, by time.Time, opts ...mcpcall.Option) (mcpcall.Answer, error)
	// Tools lists the tools, see mcpcall.Peer.
	Tools(ctx context.Context) (mcpcall.List, error)
	// Changed is told when the list of tools is not what it was.
	Changed() <-chan struct{}
	// Done is closed when the server has ended or can no longer be spoken to.
	Done() <-chan struct{}
	// Version is the protocol revision that was negotiated.
	Version() string
	// Close ends it and waits for everything that it began.
	Close() error
}

// connector makes a connection to a server. redactor is valid during and after
// each connect, also one that fails: it cuts out the server's credential.
type connector interface {
	connect(ctx context.Context) (peer, error)
	redactor() project.Redactor
}

// newConnector is that of the transport.
func newConnector(s Server, slot int, worlds *mcpstdio.Worlds) (connector, error) {
	switch s.Transport {
	case TransportStdio:
		return newStdio(s, slot, worlds)
	case TransportHTTP:
		return newOverHTTP(s)
	default:
		return nil, errors.New("catalogue: unknown transport")
	}
}

// stdio starts a child process.
type stdio struct {
	cfg Server
	// slot is which of the worlds is the server's.
	slot   int
	worlds *mcpstdio.Worlds
	source credential.Source // nil if there is no credential
	secret atomic.Pointer[project.Redactor]
}

func newStdio(s Server, slot int, worlds *mcpstdio.Worlds) (*stdio, error) {
	if worlds == nil {
		return nil, errors.New("nobody says how servers over stdio are isolated")
	}
	c := &stdio{cfg: s, slot: slot, worlds: worlds}
	if s.Credential == nil {
		return c, nil
	}
	var err error
	c.source, err = s.Credential.source(nil)
	return c, err
}

func (c *stdio) redactor() project.Redactor {
	if r := c.secret.Load(); r != nil {
		return *r
	}
	return project.Redactor{}
}

func (c *stdio) connect(ctx context.Context) (peer, error) {
	world, err := c.worlds.Of(mcpstdio.Wanted{
		Slot: c.slot, RunAs: c.cfg.RunAs, Read: c.cfg.ReadFolders, Write: c.cfg.WriteFolders, Network: c.cfg.Network,
	})
	if err != nil {
		return nil, err
	}
	env, err := c.environment(ctx)
	if err != nil {
		return nil, err
	}
	s, err := mcpstdio.Start(ctx, mcpstdio.Config{Command: c.cfg.Command, Env: env, ConnectTimeout: startTimeout, World: world, RunAs: c.cfg.RunAs})
	if err != nil {
		return nil, err // not a nil *mcpstdio.Server in the interface
	}
	return s, nil
}

// environment is the whole environment of the server, with its own credential,
// fetched for this start, and nobody else's.
func (c *stdio) environment(ctx context.Context) ([]string, error) {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Environment)) {
		env = append(env, name+"="+c.cfg.Environment[name])
	}
	if c.source == nil {
		return env, nil
	}
	keeper := credential.NewKeeper(c.source, time.Now)
	t, err := keeper.Token(ctx)
	switch {
	case err != nil:
		return nil, err
	case !t.Expires.IsZero():
		// A token was baked into a runner that outlived it (stella 491).
		return nil, errors.New("credential: it expires, and a server over stdio could not be given the next one")
	}
	r := keeper.Redactor()
	c.secret.Store(&r)
	return append(env, c.cfg.Credential.Env+"="+t.Value), nil
}

// overHTTP speaks to a URL.
type overHTTP struct {
	cfg    Server
	policy egress.Policy
	// credential and its keeper are of the server itself; nil if there is none.
	credential *Credential
	keeper     *credential.Keeper
}

func newOverHTTP(s Server) (*overHTTP, error) {
	c := &overHTTP{cfg: s, credential: s.Credential}
	if s.perSubject() {
		c.credential = s.ListingCredential
	}
	var err error
	if c.policy, err = s.Egress.policy(s.URL); err != nil || c.credential == nil {
		return c, err
	}
	source, err := c.credential.source(s.Egress)
	if err != nil {
		return nil, err
	}
	c.keeper = credential.NewKeeper(source, time.Now)
	return c, nil
}

func (c *overHTTP) redactor() project.Redactor {
	if c.keeper == nil {
		return project.Redactor{}
	}
	return c.keeper.Redactor()
}

func (c *overHTTP) connect(ctx context.Context) (peer, error) {
	return c.connectWith(ctx, c.credential, c.keeper)
}

// connectWith negotiates a session with what a keeper has, on connections of its
// own.
func (c *overHTTP) connectWith(ctx context.Context, cred *Credential, keeper *credential.Keeper) (peer, error) {
	cfg := mcphttp.Config{URL: c.cfg.URL, Transport: egress.New(c.policy, nil), ConnectTimeout: startTimeout}
	if keeper != nil {
		name, before := cred.header()
		cfg.Authorize = func(ctx context.Context, h http.Header) error {
			t, err := keeper.Token(ctx)
			if err == nil {
				h.Set(name, before+t.Value)
			}
			return err
		}
		cfg.Refused = func(h http.Header) {
			if v := h.Get(name); len(v) > len(before) {
				keeper.Refused(v[len(before):])
			}
		}
	}
	s, err := mcphttp.Connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.cfg.Transport, err)
	}
	return s, nil
}
