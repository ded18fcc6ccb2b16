package session

import "context"

// waitForBind lets an unbound worker wait for its control plane anew. The caller
// holds the lock.
func (s *Session) waitForBind() {
	if s.bind == nil && !s.closed {
		s.unbound.Reset(s.cfg.UnboundTimeout)
	}
}

// abandoned ends a worker that no control plane has asked for anything: whoever
// started it is gone, and nobody would ever end it. A warm worker is asked for
// ready by its provider, and one that is just being bound has a control plane.
func (s *Session) abandoned() {
	s.mu.Lock()
	if s.bind != nil || s.closed {
		s.mu.Unlock()
		return
	}
	if len(s.binding) > 0 {
		s.waitForBind()
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.cfg.Logger.Warn("nobody has bound this worker and nobody asks for it; it ends")
	if err := s.Shutdown(context.Background()); err != nil { // within its grace
		s.cfg.Logger.Error("shutdown of an abandoned worker", "error", err.Error())
	}
}
