package runnerclient

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"unicode/utf8"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

func misunderstood(op string) error {
	return fault.New(fault.SandboxNotReady, op, fault.Detail("the runner's answer is not understood"))
}

// lost is the exit of a program that went with its world.
func lost() hosted.Exit { return hosted.Exit{Code: -1} }

// Start implements [hosted.World]. What is left of the program before is killed,
// and its output is not read any further. A call whose context ends leaves no
// program behind.
func (w *World) Start(ctx context.Context, c hosted.Command) (hosted.Program, error) {
	const op = "runnerclient.Start"
	for _, s := range slices.Concat([]string{c.Path, c.Dir}, c.Args, c.Env) {
		if !utf8.ValidString(s) { // it would become another text on the way
			return nil, fault.New(fault.HarnessOptionsInvalid, op, fault.Detail("the command is not UTF-8"))
		}
	}
	select {
	case w.starting <- struct{}{}:
	case <-w.Gone():
		return nil, gone(op)
	case <-ctx.Done(): // one that was taken back is not settled yet
		return nil, fault.From(ctx.Err(), op)
	}
	release := func() { <-w.starting }
	in, inID, err := w.stream(ctx, op)
	if err != nil {
		release()
		return nil, err
	}
	out, outID, err := w.stream(ctx, op)
	if err != nil {
		release()
		w.drop(in)
		return nil, err
	}
	pending, err := w.send(ctx, op, &runnerproto.Request{Start: &runnerproto.Start{
		Path: c.Path, Args: c.Args, Env: c.Env, Dir: c.Dir, Stdin: inID, Stdout: outID,
	}})
	if err != nil {
		release()
		w.drop(in)
		w.drop(out)
		return nil, err
	}
	r, err := pending.await(ctx)
	if err == nil && r.Started == nil {
		err = misunderstood(op)
	}
	if err != nil {
		w.drop(in)
		w.drop(out)
		w.takeBack(context.WithoutCancel(ctx), pending, release)
		return nil, err
	}
	defer release()
	return w.adopt(ctx, r.Started.Program, in, out)
}

// takeBack sees to it that a start that failed here has left nothing there, also
// where the reply is still to come. No other start gets in between.
func (w *World) takeBack(ctx context.Context, c *call, release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || c.replied {
		release()
		return
	}
	w.wg.Go(func() { // ends with the world
		defer release()
		if r, err := c.late(); err != nil || r.Started == nil {
			return
		}
		if _, err := w.do(ctx, c.op, &runnerproto.Request{Kill: &runnerproto.Kill{}}); err != nil {
			w.hangUp() // which ends it as well
		}
	})
}

// adopt watches a program that was started.
func (w *World) adopt(ctx context.Context, id uint64, in, out net.Conn) (hosted.Program, error) {
	p := &program{w: w, done: make(chan struct{})}
	p.in = &input{w: w, conn: in, chunks: runnerproto.NewChunkWriter(in)}
	p.out = &output{w: w, conn: out, chunks: runnerproto.NewChunkReader(out)}
	const op = "runnerclient.wait"
	c, err := w.send(context.WithoutCancel(ctx), op, &runnerproto.Request{Wait: &runnerproto.Wait{Program: id}})
	w.mu.Lock()
	before := w.program
	if err == nil && !w.ended {
		w.program = p
		w.wg.Go(func() { p.watch(context.WithoutCancel(ctx), c) }) // it ends with the world
	} else if err == nil {
		err = gone(op)
	}
	w.mu.Unlock()
	if before != nil {
		w.drop(before.out.conn)
	}
	if err != nil {
		w.drop(in)
		w.drop(out)
		return nil, err
	}
	return p, nil
}

// settle waits until the program that was killed is known to have ended.
func (w *World) settle(ctx context.Context, op string) error {
	w.mu.Lock()
	p := w.program
	w.mu.Unlock()
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err(), op)
	}
}

type program struct {
	w    *World
	in   *input
	out  *output
	done chan struct{}
	exit hosted.Exit // after done
}

// watch waits for the end of the program, or of the world.
func (p *program) watch(ctx context.Context, c *call) {
	defer close(p.done)
	defer p.w.drop(p.in.conn) // nobody reads what is written now
	p.exit = lost()
	r, err := c.await(ctx)
	if err == nil && r.Ended != nil {
		p.exit = r.Ended.Exit()
	}
}

// Stdin implements [hosted.Program]. A Write fails with io.ErrClosedPipe when the
// program takes nothing any more. Close comes after what was written, and does not
// wait until the program has read it.
func (p *program) Stdin() io.WriteCloser { return p.in }

// Stdout implements [hosted.Program]. It ends with io.EOF when every process that
// has it has ended or closed it, and with sandbox_evicted when the world went
// before. It can be read after Done, until another program is started.
func (p *program) Stdout() io.Reader { return p.out }

// Done implements [hosted.Program].
func (p *program) Done() <-chan struct{} { return p.done }

// Exit implements [hosted.Program].
func (p *program) Exit() hosted.Exit {
	<-p.done
	return p.exit
}

type input struct {
	w    *World
	conn net.Conn

	mu     sync.Mutex // of the chunks
	chunks *runnerproto.ChunkWriter

	closing sync.Mutex
	closed  bool
}

func (i *input) Write(b []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.isClosed() {
		return 0, io.ErrClosedPipe
	}
	n, err := i.chunks.Write(b)
	if err != nil {
		return n, io.ErrClosedPipe
	}
	return n, nil
}

func (i *input) isClosed() bool {
	i.closing.Lock()
	defer i.closing.Unlock()
	return i.closed
}

func (i *input) Close() error {
	i.closing.Lock()
	defer i.closing.Unlock()
	if i.closed {
		return nil
	}
	i.closed = true
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	if i.w.ended {
		return nil
	}
	i.w.wg.Go(func() { // ends when the program has read, or ended, or the world has
		i.mu.Lock()
		defer i.mu.Unlock()
		_ = i.chunks.Close() // a program that is gone has read all that it will
		i.w.drop(i.conn)
	})
	return nil
}

// output reads for one reader at a time.
type output struct {
	w      *World
	conn   net.Conn
	chunks *runnerproto.ChunkReader
}

func (o *output) Read(b []byte) (int, error) {
	n, err := o.chunks.Read(b)
	if err == nil {
		return n, nil
	}
	o.w.drop(o.conn)
	if errors.Is(err, io.EOF) {
		return n, io.EOF
	}
	return n, fault.Wrap(err, fault.SandboxEvicted, "runnerclient.Stdout", fault.Detail("the program's output broke off"))
}
