package runnerclient

import (
	"context"
	"errors"
	"io"
	"net"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

// stream opens a connection for bytes. It is closed with w, if not before.
func (w *World) stream(ctx context.Context, op string) (net.Conn, uint64, error) {
	w.mu.Lock()
	w.next++
	id := w.next
	w.mu.Unlock()
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.alive, cancel)() //nolint:contextcheck // two of them end it
	conn, _, err := open(opening, w.path, runnerproto.Opening{Version: runnerproto.Version, Session: w.session, Stream: id})
	if err != nil {
		if w.alive.Err() != nil {
			return nil, 0, fault.Wrap(err, fault.SandboxEvicted, op)
		}
		return nil, 0, w.failed(inTime(ctx, err), op)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		_ = conn.Close()
		return nil, 0, gone(op)
	}
	w.streams[conn] = struct{}{}
	return conn, id, nil
}

// drop closes a stream.
func (w *World) drop(conn net.Conn) {
	w.mu.Lock()
	delete(w.streams, conn)
	w.mu.Unlock()
	_ = conn.Close() // what it carried was confirmed otherwise, or is not wanted
}

// transfer makes a request with a stream, calls f with the stream, and waits for
// the reply, which decides: an error of f stands only where the runner has none to
// tell. f's own reader or writer must end with ctx, as the stream does.
func (w *World) transfer(ctx context.Context, op string, request func(stream uint64) *runnerproto.Request, f func(net.Conn) error) error {
	conn, id, err := w.stream(ctx, op)
	if err != nil {
		return err
	}
	defer w.drop(conn)
	c, err := w.send(ctx, op, request(id))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	ferr := f(conn)
	if ferr != nil {
		_ = conn.Close() // the runner's side of it fails now, if it had not
	}
	_, err = c.await(ctx)
	if own, ok := errors.AsType[*callersError](ferr); ok {
		return fault.From(own.err, op)
	}
	if err == nil && ferr != nil {
		err = fault.Wrap(ferr, fault.SandboxEvicted, op)
	}
	return err
}

// callersError is an error of the reader or writer that a caller gave.
type callersError struct{ err error }

func (e *callersError) Error() string { return e.err.Error() }
func (e *callersError) Unwrap() error { return e.err }

// upload copies content to the stream, to its end.
func upload(conn net.Conn, content io.Reader) error {
	out := runnerproto.NewChunkWriter(conn)
	if _, err := io.Copy(out, callersReader{content}); err != nil {
		return err
	}
	return out.Close()
}

// download copies the stream to w, to its end.
func download(conn net.Conn, w io.Writer) error {
	_, err := io.Copy(callersWriter{w}, runnerproto.NewChunkReader(conn))
	return err
}

type callersReader struct{ r io.Reader }

func (c callersReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &callersError{err}
	}
	return n, err
}

type callersWriter struct{ w io.Writer }

func (c callersWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err != nil {
		err = &callersError{err}
	}
	return n, err
}
