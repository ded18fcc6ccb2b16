package runs

import (
	"context"
	"sync"

	"cofferdam.dev/services/controlplane/internal/worker"
)

// How much of a worker's stream waits here at most, besides one frame that was being
// read when it became so much. More is held back in the worker.
const (
	aheadEvents = 256
	aheadBytes  = 128 << 10
)

// ahead reads a worker's stream while what came before is being committed: what
// arrived in that time then goes into one write, so that a store that is slow has
// fewer of them to make and not a longer queue.
type ahead struct {
	stream worker.Stream
	hangUp context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	change *sync.Cond
	frames []worker.Frame
	events int
	bytes  int
	closed bool
	err    error // of the stream, after the frames
}

// readAhead reads a stream that hangUp ends.
func readAhead(stream worker.Stream, hangUp context.CancelFunc) *ahead {
	a := &ahead{stream: stream, hangUp: hangUp, done: make(chan struct{})}
	a.change = sync.NewCond(&a.mu)
	go a.read()
	return a
}

func (a *ahead) read() {
	defer close(a.done)
	for {
		f, err := a.stream.Next()
		if !a.put(f, err) {
			return
		}
	}
}

// put answers false when nothing more is to be read.
func (a *ahead) put(f worker.Frame, err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.change.Broadcast()
	if err != nil {
		a.err = err
		return false
	}
	a.frames = append(a.frames, f)
	a.events += len(f.Events)
	a.bytes += f.Bytes
	a.change.Broadcast()
	for !a.closed && (a.events >= aheadEvents || a.bytes >= aheadBytes) {
		a.change.Wait()
	}
	return !a.closed
}

// Next waits for the next frame; after the last one it answers as the stream did.
func (a *ahead) Next() (worker.Frame, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.frames) == 0 && a.err == nil {
		a.change.Wait()
	}
	if f, ok := a.take(); ok {
		return f, nil
	}
	return worker.Frame{}, a.err
}

// More gives a frame that is there already.
func (a *ahead) More() (f worker.Frame, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.take()
}

func (a *ahead) take() (f worker.Frame, ok bool) {
	if len(a.frames) == 0 {
		return f, false
	}
	f, a.frames = a.frames[0], a.frames[1:]
	a.events -= len(f.Events)
	a.bytes -= f.Bytes
	a.change.Broadcast()
	return f, true
}

// Close hangs up, waits until nothing is read any more, and closes the stream.
func (a *ahead) Close() error {
	a.hangUp()
	a.mu.Lock()
	a.closed = true
	a.change.Broadcast()
	a.mu.Unlock()
	<-a.done
	a.mu.Lock()
	if a.err == nil { // it was not read to its end
		a.err = context.Canceled
	}
	a.mu.Unlock()
	return a.stream.Close()
}
