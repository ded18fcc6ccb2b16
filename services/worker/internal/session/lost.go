package session

import "context"

// lost says that the world of the adapter's program is gone.
func (c Config) lost() bool {
	select {
	case <-c.Lost: // nil never is
		return true
	default:
		return false
	}
}

// watchWorld ends the worker once its adapter's world is gone, after the run that is
// under way has told of it: a dead part of a sandbox is a dead lease. It ends with the
// session.
func (s *Session) watchWorld() {
	select {
	case <-s.cfg.Lost:
	case <-s.stopped:
		return
	}
	s.mu.Lock()
	ending := s.ending
	s.closed = true
	active := s.active
	s.mu.Unlock()
	if ending { // who shuts down gives the world up as well
		return
	}
	s.cfg.Logger.Error("the world of the program is gone; the worker ends")
	if active != nil {
		select {
		case <-active.stopped:
		case <-s.stopped:
		}
	}
	if err := s.Shutdown(context.Background()); err != nil { // within its grace
		s.cfg.Logger.Error("shutdown after the world of the program is gone", "error", err.Error())
	}
}
