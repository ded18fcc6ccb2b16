package runnerclient

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

// read takes in replies until the connection ends.
func (w *World) read() {
	defer w.hangUp()
	for {
		r := new(runnerproto.Reply)
		if err := runnerproto.ReadFrame(w.conn, r, runnerproto.MaxReply); err != nil {
			return
		}
		w.mu.Lock()
		waiting := w.pending[r.ID]
		delete(w.pending, r.ID)
		w.mu.Unlock()
		if waiting != nil { // else its call has ended
			waiting <- r // has room for it
		}
	}
}

// call is a request that is on its way.
type call struct {
	w       *World
	op      string
	id      uint64
	reply   <-chan *runnerproto.Reply
	replied bool
}

// send sends a request. Its reply, which always comes while there is a runner, is
// waited for by await.
func (w *World) send(ctx context.Context, op string, r *runnerproto.Request) (*call, error) {
	if err := ctx.Err(); err != nil {
		return nil, fault.From(err, op)
	}
	reply := make(chan *runnerproto.Reply, 1)
	w.mu.Lock()
	if w.ended {
		w.mu.Unlock()
		return nil, gone(op)
	}
	w.next++
	r.ID = w.next
	w.pending[r.ID] = reply
	w.mu.Unlock()
	c := &call{w: w, op: op, id: r.ID, reply: reply}
	if err := w.write(ctx, r); err != nil {
		c.forget()
		return nil, w.failed(err, op)
	}
	return c, nil
}

// await waits for the reply. A call whose context ends is taken back, and may have
// been carried out.
func (c *call) await(ctx context.Context) (*runnerproto.Reply, error) {
	select {
	case r := <-c.reply:
		return c.take(r)
	default:
	}
	select {
	case r := <-c.reply:
		return c.take(r)
	case <-c.w.Gone():
		return nil, gone(c.op)
	case <-ctx.Done():
		c.cancel(context.WithoutCancel(ctx))
		return nil, fault.From(ctx.Err(), c.op)
	}
}

// late waits for the reply to a call that was taken back.
func (c *call) late() (*runnerproto.Reply, error) {
	select {
	case r := <-c.reply:
		return c.take(r)
	case <-c.w.Gone():
		return nil, gone(c.op)
	}
}

func (c *call) take(r *runnerproto.Reply) (*runnerproto.Reply, error) {
	c.replied = true
	return r, wireError(r.Error, c.op)
}

func (c *call) forget() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	delete(c.w.pending, c.id)
}

// cancel takes a call back, for what that is worth: it waits for nobody.
func (c *call) cancel(ctx context.Context) {
	soon, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	_ = c.w.write(soon, &runnerproto.Request{ID: c.id, Cancel: &runnerproto.Nothing{}}) // a runner that is gone has nothing to cancel
}

// cancelTimeout bounds what a call takes longer than its context.
const cancelTimeout = 100 * time.Millisecond

// do sends a request and waits for its reply.
func (w *World) do(ctx context.Context, op string, r *runnerproto.Request) (*runnerproto.Reply, error) {
	c, err := w.send(ctx, op, r)
	if err != nil {
		return nil, err
	}
	return c.await(ctx)
}

// write writes one frame. One that was not written whole ends the connection.
func (w *World) write(ctx context.Context, r *runnerproto.Request) error {
	select {
	case w.writing <- struct{}{}:
	case <-w.Gone():
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.writing }()
	until := time.Now().Add(runnerproto.WriteTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	if err := w.conn.SetWriteDeadline(until); err != nil {
		return errGone
	}
	counted := &counter{w: w.conn}
	err := runnerproto.WriteFrame(counted, r, runnerproto.MaxRequest)
	if err != nil && (counted.n > 0 || broke(err)) {
		w.hangUp() // the runner would take the rest for another frame, or there is none
	}
	return inTime(ctx, err)
}

// inTime is the context's error where that is what ended an operation of the
// network, which may notice a little earlier.
func inTime(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if d, ok := ctx.Deadline(); ok && errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return err
}

// broke says that nobody is at the other end.
func broke(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed)
}

type counter struct {
	w interface{ Write(p []byte) (int, error) }
	n int
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += n
	return n, err
}

var errGone = errors.New("runnerclient: the runner is gone")

// gone is the answer of a world that is gone: the part of the sandbox that had the
// program in it went away.
func gone(op string) error { return fault.New(fault.SandboxEvicted, op) }

// failed is the error of a call that could not be made.
func (w *World) failed(err error, op string) error {
	switch {
	case errors.Is(err, runnerproto.ErrTooLarge):
		return fault.Wrap(err, fault.RequestTooLarge, op)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.From(err, op)
	case w.alive.Err() != nil:
		return fault.Wrap(err, fault.SandboxEvicted, op)
	default:
		return notReady(err, op)
	}
}

// notReady is an error of a runner that cannot be used. What it said itself is its
// detail.
func notReady(err error, op string) error {
	if said, ok := errors.AsType[*runnerproto.Error](err); ok {
		return fault.Wrap(err, fault.SandboxNotReady, op, fault.Detail(said.Detail))
	}
	return fault.Wrap(err, fault.SandboxNotReady, op)
}

// wireError restores the error of a reply.
func wireError(e *runnerproto.Error, op string) error {
	if e == nil {
		return nil
	}
	code := fault.Code(e.Code)
	if !code.Known() {
		code = fault.Internal
	}
	if e.Detail == "" {
		return fault.Wrap(e, code, op)
	}
	return fault.Wrap(e, code, op, fault.Detail(e.Detail))
}
