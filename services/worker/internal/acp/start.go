package acp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/loopback"
)

// maxReplay bounds the wait for the end of a late replay.
const maxReplay = 15 * time.Second

// start starts the agent and takes it to a session: a new one, or that of the
// state. Where it fails nothing of the agent is left.
func (r *runtime) start(ctx context.Context, t *turn, s snapshot) (*program, error) {
	vars := variablesOf(r.endpoints.Renew(), t.facades.Model.Alias)
	if err := r.writeHome(ctx, vars); err != nil {
		return nil, err
	}
	if s.Session != "" && r.cfg.Preset.LoadNextMinute {
		if err := r.nextMinute(ctx, s.Made); err != nil {
			return nil, err
		}
	}
	proc, err := r.cfg.World.Start(ctx, r.command(vars))
	if err != nil {
		return nil, fault.From(err, "acp.start")
	}
	p := connect(r.cfg.World, proc, r.cfg.Preset.grace())
	t.program = p
	p.client.attach(t, s.Session, false)
	starting, cancel := context.WithTimeout(ctx, r.cfg.Preset.startup())
	defer cancel()
	err = r.handshake(starting, t, vars, s)
	if err == nil {
		return p, nil
	}
	err = r.startFault(ctx, p, err)
	return nil, errors.Join(err, t.quit(ctx))
}

// startFault says why there is no session.
func (r *runtime) startFault(ctx context.Context, p *program, err error) error {
	const op = "acp.start"
	if ctx.Err() != nil {
		return fault.From(ctx.Err(), op)
	}
	if known, ok := errors.AsType[*fault.Error](err); ok {
		return known
	}
	if refused, ok := errors.AsType[*sdk.RequestError](err); ok && !p.gone(ctx) {
		cause := fmt.Errorf("the agent refused the session with code %d", refused.Code) // its text may be anything
		if refused.Code == authRequired {
			return fault.Wrap(cause, fault.HarnessOptionsInvalid, op, fault.Detail("preset: the agent wants a login"))
		}
		return fault.Wrap(cause, fault.Protocol, op)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(errors.New("the agent was not ready in time"), fault.SandboxNotReady, op)
	}
	return p.exited(ctx)
}

// authRequired is ACP's code of an agent that wants a login.
const authRequired = -32000

// gone tells whether the agent has ended, or is about to.
func (p *program) gone(ctx context.Context) bool {
	select {
	case <-p.conn.Done():
	default:
		return false
	}
	select {
	case <-p.proc.Done():
	case <-time.After(p.grace):
	case <-ctx.Done():
	}
	return true
}

func (r *runtime) command(vars variables) hosted.Command {
	c := hosted.Command{Path: r.cfg.Preset.Command, Dir: hosted.Workspace}
	for _, arg := range r.cfg.Preset.Args {
		c.Args = append(c.Args, vars.expand(arg, asIs))
	}
	for _, name := range slices.Sorted(maps.Keys(r.cfg.Preset.Env)) {
		c.Env = append(c.Env, name+"="+vars.expand(r.cfg.Preset.Env[name], asIs))
	}
	return c
}

// writeHome writes the agent's configuration. It comes after the state, which
// could hold an older one.
func (r *runtime) writeHome(ctx context.Context, vars variables) error {
	write := func(name, content string) error {
		f := hosted.File{Path: path.Join(hosted.Home, name)}
		return r.cfg.World.WriteFile(ctx, f, strings.NewReader(content))
	}
	for _, name := range slices.Sorted(maps.Keys(r.cfg.Preset.HomeFiles)) {
		content, err := vars.homeFile(r.cfg.Preset.HomeFiles[name])
		if err != nil {
			return fault.Wrap(err, fault.HarnessOptionsInvalid, "acp.start")
		}
		if err := write(name, content); err != nil {
			return err
		}
	}
	if prompt := r.prompt(); r.cfg.Preset.PromptFile != "" && prompt != "" {
		return write(r.cfg.Preset.PromptFile, prompt+"\n")
	}
	return nil
}

// handshake takes the agent to its session.
func (r *runtime) handshake(ctx context.Context, t *turn, vars variables, s snapshot) error {
	p := t.program
	err := p.ask(ctx, func(ctx context.Context) error {
		res, err := p.conn.Initialize(ctx, sdk.InitializeRequest{
			ProtocolVersion: sdk.ProtocolVersionNumber, ClientInfo: &sdk.Implementation{Name: loopback.Name, Version: Version},
		})
		if err == nil && res.ProtocolVersion != sdk.ProtocolVersionNumber {
			return fault.New(fault.WorkerMismatch, "acp.start", fault.Detail("the agent speaks another version of ACP"))
		}
		p.setCaps(res.AgentCapabilities)
		return err
	})
	if err != nil {
		return err
	}
	if s.Session == "" {
		err = r.newSession(ctx, t, vars)
	} else {
		err = r.loadSession(ctx, t, vars, s)
	}
	if err != nil || r.cfg.Preset.Mode == "" {
		return err
	}
	return p.ask(ctx, func(ctx context.Context) error {
		_, err := p.conn.SetSessionMode(ctx, sdk.SetSessionModeRequest{
			SessionId: sdk.SessionId(p.session), ModeId: sdk.SessionModeId(r.cfg.Preset.Mode),
		})
		return err
	})
}

func (p *program) setCaps(c sdk.AgentCapabilities) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.caps = c
}

func (p *program) capabilities() sdk.AgentCapabilities {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.caps
}

// servers are the MCP servers of a session: the worker's one, or none.
func (r *runtime) servers(vars variables) []sdk.McpServer {
	if r.cfg.Preset.MCP != MCPHTTP || len(r.construction.Tools) == 0 {
		return []sdk.McpServer{}
	}
	return []sdk.McpServer{{Http: &sdk.McpServerHttpInline{
		Type: "http", Name: loopback.Name, Url: vars[varModelBaseURL] + "/mcp",
		Headers: []sdk.HttpHeader{{Name: "Authorization", Value: "Bearer " + vars[varModelKey]}},
	}}}
}

func (r *runtime) newSession(ctx context.Context, t *turn, vars variables) error {
	p := t.program
	session := make(chan string, 1)
	err := p.ask(ctx, func(ctx context.Context) error {
		res, err := p.conn.NewSession(ctx, sdk.NewSessionRequest{Cwd: hosted.Workspace, McpServers: r.servers(vars)})
		session <- string(res.SessionId)
		return err
	})
	if err != nil {
		return err
	}
	if p.session = <-session; p.session == "" || len(p.session) > maxSession {
		return fault.Wrap(errors.New("the agent's session has no id that can be kept"), fault.Protocol, "acp.start")
	}
	t.made = minute(r.cfg.Now())
	return nil
}

// loadSession has the agent load a session. What it replays was told in the runs
// before.
func (r *runtime) loadSession(ctx context.Context, t *turn, vars variables, s snapshot) error {
	p := t.program
	p.session, t.made, t.loaded = s.Session, s.Made, true
	if !p.capabilities().LoadSession {
		return fault.New(fault.WorkerMismatch, "acp.start", fault.Detail("the agent cannot load a session"))
	}
	err := p.ask(ctx, func(ctx context.Context) error {
		_, err := p.conn.LoadSession(ctx, sdk.LoadSessionRequest{
			SessionId: sdk.SessionId(s.Session), Cwd: hosted.Workspace, McpServers: r.servers(vars),
		})
		return err
	})
	if err != nil || !r.cfg.Preset.LateReplay {
		return err
	}
	return p.quiet(ctx, r.cfg.Quiet)
}

// quiet waits until the agent has said nothing for a while, or for long enough.
func (p *program) quiet(ctx context.Context, gap time.Duration) error {
	enough := time.NewTimer(maxReplay)
	defer enough.Stop()
	silence := time.NewTimer(gap)
	defer silence.Stop()
	for {
		select {
		case <-p.client.heard:
			silence.Reset(gap)
		case <-silence.C:
			return nil
		case <-enough.C:
			return nil
		case <-p.broken:
			return p.failure()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nextMinute waits for the end of the minute in which the session was made.
func (r *runtime) nextMinute(ctx context.Context, made int64) error {
	now := r.cfg.Now()
	if minute(now) != made {
		return nil
	}
	wait := time.NewTimer(time.Unix((made+1)*60, 0).Sub(now))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err(), "acp.start")
	}
}
