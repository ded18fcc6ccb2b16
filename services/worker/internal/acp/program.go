package acp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/hosted"
)

// killTimeout bounds the wait for the end of all processes, beside their grace.
const killTimeout = 15 * time.Second

// program is a started agent with its connection.
type program struct {
	world  hosted.World
	proc   hosted.Program
	conn   *sdk.ClientSideConnection
	pump   *pump
	client *client
	grace  time.Duration

	session string
	caps    sdk.AgentCapabilities
	// prompted has the result of the turn's prompt.
	prompted chan prompted

	work   sync.WaitGroup
	broken chan struct{}
	mu     sync.Mutex
	err    error
	once   sync.Once
}

// prompted is how a prompt was answered.
type prompted struct {
	stop sdk.StopReason
	err  error
}

// connect begins to speak with a started program.
func connect(world hosted.World, proc hosted.Program, grace time.Duration) *program {
	p := &program{
		world: world, proc: proc, grace: grace, client: newClient(), prompted: make(chan prompted, 1), broken: make(chan struct{}),
	}
	from, to := io.Pipe()
	p.pump = &pump{
		from: proc.Stdout(), to: to, listener: p.client,
		flow: make(chan struct{}, 1), open: make(chan struct{}, maxRequests), end: make(chan struct{}),
	}
	p.work.Go(func() {
		err := p.pump.run()
		if err != nil {
			p.fail(err)
		}
		_ = to.Close() // the reader sees the end
	})
	p.conn = sdk.NewClientSideConnection(p.client, answers{Writer: proc.Stdin(), open: p.pump.open}, from)
	p.conn.SetLogger(slog.New(slog.DiscardHandler)) // it quotes what the agent wrote
	return p
}

// fail keeps how the agent broke its part, the first reason.
func (p *program) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
		close(p.broken)
	}
}

func (p *program) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// ask makes a request and waits for its answer at most as long as ctx, for the
// program's end, and for its failure. The request may stay behind: it ends with
// the program.
func (p *program) ask(ctx context.Context, request func(ctx context.Context) error) error {
	done := make(chan error, 1)
	p.work.Go(func() { done <- request(context.WithoutCancel(ctx)) })
	select {
	case err := <-done:
		if f := p.failure(); f != nil {
			return f
		}
		return err
	case <-p.broken:
		return p.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pause waits until no line of the agent is being handled, and lets none be until
// resume.
func (p *program) pause(ctx context.Context) error {
	select {
	case p.pump.flow <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *program) resume() { <-p.pump.flow }

// stop ends every process of the world and everything that served the program.
// gently lets the agent end by itself first: it may have something to write. It
// returns once nothing runs any more, also when ctx has ended. It is repeatable.
func (p *program) stop(ctx context.Context, gently bool) error {
	p.once.Do(func() { close(p.pump.end) })
	p.client.close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*p.grace+killTimeout)
	defer cancel()
	closed := make(chan struct{})
	p.work.Go(func() {
		defer close(closed)
		_ = p.proc.Stdin().Close() // a program that has ended has none
	})
	grace := p.grace
	if gently {
		select {
		case <-p.proc.Done():
		case <-time.After(p.grace):
		}
	} else {
		grace = min(grace, 500*time.Millisecond)
	}
	if err := p.world.KillAll(ctx, grace); err != nil {
		return fault.From(err, "acp.stop")
	}
	if c, ok := p.proc.Stdout().(io.Closer); ok {
		_ = c.Close() // it is at its end
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.work.Wait()
		<-p.conn.Done()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fault.Wrap(errors.New("the agent's streams stay open after its end"), fault.Internal, "acp.stop")
	}
}

// exited is why a program that has ended did: a limit of the sandbox, or its own
// will, which breaks the turn.
func (p *program) exited(ctx context.Context) error {
	if err := p.failure(); err != nil {
		return err
	}
	e := p.proc.Exit()
	if e.Limit != "" {
		return fault.Wrap(errors.New("the agent ran into the limit "+e.Limit), fault.SandboxLimit, "acp.exit")
	}
	if e.Signal != "" {
		if limits, err := p.world.Limits(ctx); err == nil && len(limits) > 0 {
			return fault.Wrap(errors.New("the agent was ended by a signal after the limit "+limits[0]), fault.SandboxLimit, "acp.exit")
		}
	}
	return fault.Wrap(errors.New("the agent has ended in the middle"), fault.Protocol, "acp.exit")
}
