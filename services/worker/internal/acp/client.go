package acp

import (
	"context"
	"encoding/json"
	"sync"

	sdk "github.com/coder/acp-go-sdk"
)

// turnListener is the turn that an agent's words belong to.
type turnListener interface {
	update(u update) error
	asking(r report) error
	// decide answers a question; it waits for a person if need be, until ctx ends.
	decide(ctx context.Context, key string, options []sdk.PermissionOption) sdk.RequestPermissionOutcome
	outside(u update)
}

// client is the client's side of the protocol. Without a turn it hears nothing
// and allows nothing.
type client struct {
	// life ends with the program.
	life  context.Context //nolint:containedctx // the life of the program
	close context.CancelFunc

	mu      sync.Mutex
	turn    turnListener
	inTurn  bool
	session string
	heard   chan struct{} // a token for each update outside a turn
}

func newClient() *client {
	c := &client{heard: make(chan struct{}, 1)}
	c.life, c.close = context.WithCancel(context.Background())
	return c
}

// attach makes a turn the one that the agent's words belong to. Before it has
// begun, they are a replay of others.
func (c *client) attach(t turnListener, session string, begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn, c.session, c.inTurn = t, session, begun
}

func (c *client) detach() { c.attach(nil, "", false) }

func (c *client) current() (t turnListener, session string, begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.turn, c.session, c.inTurn
}

func (c *client) update(session string, u update) error {
	t, own, begun := c.current()
	switch {
	case t == nil:
	case begun && session == own:
		return t.update(u)
	default:
		t.outside(u)
		select {
		case c.heard <- struct{}{}:
		default:
		}
	}
	return nil
}

func (c *client) asking(session string, r report) error {
	if t, own, begun := c.current(); begun && session == own {
		return t.asking(r)
	}
	return nil
}

// RequestPermission implements sdk.Client.
func (c *client) RequestPermission(ctx context.Context, p sdk.RequestPermissionRequest) (sdk.RequestPermissionResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)() //nolint:contextcheck // a question ends with the program as well
	outcome := cancelledOutcome()
	if t, own, begun := c.current(); begun && string(p.SessionId) == own {
		outcome = t.decide(ctx, string(p.ToolCall.ToolCallId), p.Options)
	}
	return sdk.RequestPermissionResponse{Outcome: outcome}, nil
}

// HandleExtensionMethod implements sdk.ExtensionMethodHandler: there are none.
func (*client) HandleExtensionMethod(_ context.Context, method string, _ json.RawMessage) (any, error) {
	return nil, sdk.NewMethodNotFound(method)
}

// SessionUpdate implements sdk.Client. Updates never come this far.
func (*client) SessionUpdate(context.Context, sdk.SessionNotification) error { return nil }

// The agent works in its own world, on the workspace itself: files and terminals
// of the client are not offered, and not given to one that asks all the same.

// ReadTextFile implements sdk.Client.
func (*client) ReadTextFile(context.Context, sdk.ReadTextFileRequest) (r sdk.ReadTextFileResponse, err error) {
	return r, sdk.NewMethodNotFound(sdk.ClientMethodFsReadTextFile)
}

// WriteTextFile implements sdk.Client.
func (*client) WriteTextFile(context.Context, sdk.WriteTextFileRequest) (r sdk.WriteTextFileResponse, err error) {
	return r, sdk.NewMethodNotFound(sdk.ClientMethodFsWriteTextFile)
}

// CreateTerminal implements sdk.Client.
func (*client) CreateTerminal(context.Context, sdk.CreateTerminalRequest) (r sdk.CreateTerminalResponse, err error) {
	return r, sdk.NewMethodNotFound(sdk.ClientMethodTerminalCreate)
}

// KillTerminal implements sdk.Client.
func (*client) KillTerminal(context.Context, sdk.KillTerminalRequest) (r sdk.KillTerminalResponse, err error) {
	return r, sdk.NewMethodNotFound(sdk.ClientMethodTerminalKill)
}

// TerminalOutput implements sdk.Client.
func (*client) TerminalOutput(context.Context, sdk.TerminalOutputRequest) (r sdk.TerminalOutputResponse, err error) {
	return r, sdk.NewMethodNotFound(sdk.ClientMethodTerminalOutput)
}

// ReleaseTerminal implements sdk.Client.
func (*client) ReleaseTerminal(context.Context, sdk.ReleaseTerminalRequest) (r sdk.ReleaseTerminalResponse, err error) {
	return r, sdk.NewMethodNotFound(sdk.ClientMethodTerminalRelease)
}

// WaitForTerminalExit implements sdk.Client.
func (*client) WaitForTerminalExit(context.Context, sdk.WaitForTerminalExitRequest) (r sdk.WaitForTerminalExitResponse, err error) {
	return r, sdk.NewMethodNotFound(sdk.ClientMethodTerminalWaitForExit)
}
