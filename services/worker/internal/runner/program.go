//go:build linux

package runner

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/runnerproto"
)

// program is a started program, and the copying between it and the worker.
type program struct {
	id    uint64
	pid   int // and process group, and session
	world *world
	since map[string]uint64
	pipes *pipes
	in    net.Conn
	out   net.Conn
	wg    sync.WaitGroup

	// ran: it was killed because something of it ran while it was frozen.
	ran atomic.Bool

	done chan struct{}     // closed when the first process has ended
	end  runnerproto.Ended // after done
}

// run copies until the program and everything that holds its pipes has ended.
func (p *program) run(ended <-chan unix.WaitStatus) {
	p.wg.Go(p.copyIn)
	p.wg.Go(p.copyOut)
	p.wg.Go(p.readErr)
	p.wg.Go(func() { // ends when the process is reaped
		p.end = p.world.limits.ended(<-ended, p.since)
		if p.ran.Load() {
			p.end.Reason = runnerproto.ReasonRan
		}
		close(p.done)
		_ = p.pipes.stdin.Close() // nobody reads what comes now
		_ = p.in.Close()
	})
}

func (p *program) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// close ends the copying and waits for it. Every process has ended before.
func (p *program) close() {
	_ = p.in.Close()
	_ = p.out.Close()
	p.wg.Wait()
	p.pipes.closeOurs()
}

// copyIn is the program's input. An input that breaks off, and does not end, is
// from a worker that has given the program up: half of what it had to say must not
// be acted on.
func (p *program) copyIn() {
	_, err := io.Copy(onlyWriter{p.pipes.stdin}, runnerproto.NewChunkReader(p.in))
	_ = p.pipes.stdin.Close()
	_ = p.in.Close() // the worker sees that no more is taken
	if (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, runnerproto.ErrTooLarge)) && p.running() {
		p.world.log.Warn("input of the program broke off")
		if err := p.world.killer.tree.SignalGroup(p.pid, unix.SIGKILL); err != nil {
			p.world.log.Error("program cannot be ended", "error", err)
		}
	}
}

// copyOut is its output. It is read no faster than the worker reads.
func (p *program) copyOut() {
	out := runnerproto.NewChunkWriter(p.out)
	_, err := io.CopyBuffer(out, onlyReader{p.pipes.stdout}, make([]byte, pipeBuffer))
	if err == nil {
		_ = out.Close() // a worker that is gone does not need to be told
	}
	_ = p.pipes.stdout.Close() // a program that writes on is told that nobody reads
	_ = p.out.Close()
}

// readErr takes what it writes to standard error. A program whose standard error
// broke off would notice.
func (p *program) readErr() {
	if p.world.cfg.LogLevel > slog.LevelDebug {
		_, _ = io.Copy(io.Discard, p.pipes.stderr) // no pipe's error says anything
		return
	}
	logLines(p.world.log, p.pipes.stderr, time.Now)
}

// pipeBuffer is what is held of a program's output, in bytes.
const pipeBuffer = 32 << 10

type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

// pipes are the ends of a program's standard streams.
type pipes struct {
	stdin, stdout, stderr       *os.File
	theirIn, theirOut, theirErr *os.File
}

func newPipes() (_ *pipes, err error) {
	var p pipes
	defer func() {
		if err != nil {
			p.closeTheirs()
			p.closeOurs()
		}
	}()
	if p.theirIn, p.stdin, err = os.Pipe(); err != nil {
		return nil, err
	}
	if p.stdout, p.theirOut, err = os.Pipe(); err != nil {
		return nil, err
	}
	if p.stderr, p.theirErr, err = os.Pipe(); err != nil {
		return nil, err
	}
	return &p, nil
}

func (p *pipes) theirs() []uintptr {
	return []uintptr{p.theirIn.Fd(), p.theirOut.Fd(), p.theirErr.Fd()}
}

func (p *pipes) closeTheirs() { closeAll(p.theirIn, p.theirOut, p.theirErr) }
func (p *pipes) closeOurs()   { closeAll(p.stdin, p.stdout, p.stderr) }

// closeAll closes pipes, which has no error that says anything; some are not open.
func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
