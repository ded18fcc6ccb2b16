package api

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"cofferdam.dev/pkg/fault"
)

// Bounds of a stream, where Config says nothing.
const (
	writeTimeout = 30 * time.Second
	idleComment  = 15 * time.Second
)

// sse writes server-sent events: LF only, one blank line after each frame. It is
// not safe for concurrent use, but for interrupt.
type sse struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	cut     atomic.Bool
}

// newSSE begins the answer. After this only the stream itself can tell of errors.
func (a *API) newSSE(w http.ResponseWriter) (*sse, error) {
	s := &sse{w: w, rc: http.NewResponseController(w), timeout: a.cfg.WriteTimeout}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies that buffer would hold events back
	w.WriteHeader(http.StatusOK)
	// A stream outlives the bound on its request: on HTTP/1.1 that would end it.
	if err := s.rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return s, fault.Wrap(err, fault.Cancelled, "api.sse")
	}
	return s, s.flush()
}

// frame writes one frame, which leaves with the next flush at the latest. id and name
// may be empty; data is one line.
func (s *sse) frame(id *uint64, name string, data []byte) error {
	if bytes.ContainsAny(data, "\r\n") {
		return fault.New(fault.Internal, "api.sse") // it would be more than one frame
	}
	buf := make([]byte, 0, len(data)+64)
	if id != nil {
		buf = append(strconv.AppendUint(append(buf, "id: "...), *id, 10), '\n')
	}
	if name != "" {
		buf = append(append(append(buf, "event: "...), name...), '\n')
	}
	buf = append(append(append(buf, "data: "...), data...), "\n\n"...)
	return s.write(buf)
}

// comment keeps an idle connection open and finds out that a client has gone.
func (s *sse) comment() error {
	if err := s.write([]byte(": \n\n")); err != nil {
		return err
	}
	return s.flush()
}

// interrupt makes the write that is under way fail, and every later one. It can be
// called from another goroutine while the request is served.
func (s *sse) interrupt() {
	s.cut.Store(true)
	_ = s.rc.SetWriteDeadline(time.Now()) // where there are no deadlines the write ends by itself
}

func (s *sse) write(b []byte) error {
	if err := s.bound(); err != nil {
		return err
	}
	if _, err := s.w.Write(b); err != nil {
		return fault.Wrap(err, fault.Cancelled, "api.sse")
	}
	return nil
}

// flush sends what was written.
func (s *sse) flush() error {
	if err := s.bound(); err != nil {
		return err
	}
	if err := s.rc.Flush(); err != nil {
		return fault.Wrap(err, fault.Cancelled, "api.sse")
	}
	return nil
}

// bound gives what is written next its time.
func (s *sse) bound() error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fault.Wrap(err, fault.Cancelled, "api.sse")
	}
	if s.cut.Load() { // after the deadline was set: interrupt sets its own in the other order
		return fault.New(fault.Cancelled, "api.sse")
	}
	return nil
}
