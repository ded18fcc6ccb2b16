package runs

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// source gives frames until its context ends, and counts those that were taken.
type source struct {
	ctx    context.Context //nolint:containedctx // ends with the stream
	frames []worker.Frame
	err    error
	taken  int
	closed bool
}

func (s *source) Next() (worker.Frame, error) {
	if s.taken < len(s.frames) {
		s.taken++
		return s.frames[s.taken-1], nil
	}
	if s.err != nil {
		return worker.Frame{}, s.err
	}
	<-s.ctx.Done()
	return worker.Frame{}, s.ctx.Err()
}

func (s *source) Close() error { s.closed = true; return nil }

func framesOf(n, events, bytes int) []worker.Frame {
	out := make([]worker.Frame, n)
	for i := range out {
		out[i] = worker.Frame{Events: make([]event.Event, events), Bytes: bytes}
		out[i].Events[0].Sequence = uint64(i)
	}
	return out
}

// A stream is read ahead within bounds, in order and once each, and what broke it
// comes after what came before.
func TestAStreamIsReadAheadWithinBounds(t *testing.T) {
	broke := errors.New("it broke")
	for name, c := range map[string]struct {
		frames []worker.Frame
		most   int
	}{
		"events": {framesOf(1000, 1, 100), aheadEvents},
		"bytes":  {framesOf(1000, 1, aheadBytes/4), 4},
		"large":  {framesOf(10, 64, 2*aheadBytes), 1},
		"few":    {framesOf(3, 1, 1), 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, hangUp := context.WithCancel(t.Context())
				s := &source{ctx: ctx, frames: c.frames, err: broke}
				a := readAhead(s, hangUp)
				synctest.Wait()
				if s.taken != c.most {
					t.Errorf("%d frames were read ahead, not %d", s.taken, c.most)
				}
				for i := range c.frames {
					f, err := a.Next()
					if err != nil || f.Events[0].Sequence != uint64(i) {
						t.Fatalf("frame %d: %v, %v", i, f.Events[0].Sequence, err)
					}
				}
				for range 2 {
					if _, err := a.Next(); !errors.Is(err, broke) {
						t.Errorf("after the last frame: %v", err)
					}
				}
				if _, ok := a.More(); ok {
					t.Error("there is more than all")
				}
				if err := a.Close(); err != nil || !s.closed || ctx.Err() == nil {
					t.Errorf("Close: %v, closed %v, hung up %v", err, s.closed, ctx.Err())
				}
			})
		})
	}
}

// Close wakes a reader that waits for a frame, and one that waits for room.
func TestAStreamThatIsClosedKeepsNobody(t *testing.T) {
	for name, frames := range map[string][]worker.Frame{"nothing comes": nil, "nobody takes": framesOf(1000, 64, 1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, hangUp := context.WithCancel(t.Context())
				a := readAhead(&source{ctx: ctx, frames: frames, err: nil}, hangUp)
				synctest.Wait()
				if err := a.Close(); err != nil {
					t.Error(err)
				}
				for {
					_, err := a.Next()
					if err == nil {
						continue
					}
					if !errors.Is(err, context.Canceled) && !errors.Is(err, io.EOF) {
						t.Errorf("after Close: %v", err)
					}
					return
				}
			})
		})
	}
}
