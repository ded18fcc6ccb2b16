package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cofferdam.dev/deploy/local/internal/logfile"
	"cofferdam.dev/deploy/local/internal/supervise"
	"cofferdam.dev/pkg/process"
)

// child is a part that runs.
type child struct {
	part

	process *supervise.Child
}

// notReadyYet begins what every service warns of when it is asked too early.
const notReadyYet = "readiness check failed"

// program is the path of one of the programs.
func (c Config) program(name string) string { return filepath.Join(c.BinDir, name) }

// startPart starts a part and waits until it is ready. Errors name the part, what
// it said, and where its log is.
func (s *Stack) startPart(ctx context.Context, p part) error {
	log, err := logfile.Open(s.dir.Log(p.name), 0)
	if err != nil {
		return err
	}
	s.onStop(func(time.Time) error { return log.Close() })
	notes := &logfile.Notes{Warn: func(text string) { s.warn(p.name, text) }}
	log.Tap(notes.Add)
	s.say.begin(p.name)
	process, err := s.supervise(ctx, p, log)
	s.say.end(err == nil)
	if err != nil {
		return explain(ctx, p.name, err, notes, log.Path())
	}
	s.onStop(func(until time.Time) error { return process.Stop(min(p.grace, time.Until(until))) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.children[p.name] = child{p, process}
	return nil
}

// warn passes the first warnings of a part on to people.
func (s *Stack) warn(name, text string) {
	if !strings.HasPrefix(text, notReadyYet) {
		s.say.note("%s: %s", name, text)
	}
}

func (s *Stack) supervise(ctx context.Context, p part, log *logfile.File) (*supervise.Child, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	files := make([]*os.File, len(p.listeners))
	for i, l := range p.listeners {
		files[i] = l.file
	}
	return supervise.Start(ctx, supervise.Config{
		Spec: process.Spec{
			Path: s.cfg.program(p.program), Args: p.args, Dir: s.dir.Path(), Stdout: log, Stderr: log, ExtraFiles: files,
		},
		Ready: func(ctx context.Context) error { return s.prober.waitReady(ctx, p.ready) },
		Ended: func(e supervise.End) { s.ended(p, e, log.Path()) },
	})
}

// ended tells of a life that is over and will be followed by another.
func (s *Stack) ended(p part, e supervise.End, log string) {
	how := "exit status 0"
	if e.Err != nil {
		how = e.Err.Error()
	}
	s.log.Warn("part ended; it is started again", "part", p.name, "how", how, "lived", e.Lived.String(), "pause", e.Pause.String())
	s.say.note("%s ended (%s): starting it again in %v; its log: %s", p.name, how, e.Pause, log)
	if p.ended != nil {
		p.ended()
	}
}

// explain says why a part did not come up, in its own words if it has any.
func explain(ctx context.Context, name string, err error, notes *logfile.Notes, log string) error {
	var early *supervise.ExitedError
	said := notes.Failure()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: interrupted: %w", name, err)
	case errors.As(err, &early) && said != "":
		return fmt.Errorf("%s did not start: %s\nits log: %s", name, said, log)
	case errors.Is(err, context.DeadlineExceeded):
		if said != "" {
			said = "; it said: " + said
		}
		return fmt.Errorf("%s did not become ready within %v: %w%s\nits log: %s", name, readyTimeout, err, said, log)
	default:
		return fmt.Errorf("%s did not start: %w\nits log: %s", name, err, log)
	}
}

// Kill ends a part with SIGKILL and waits until supervision has brought it back
// and it is ready, or for ctx.
func (s *Stack) Kill(ctx context.Context, name string) error {
	s.mu.Lock()
	c, ok := s.children[name]
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("there is no part %q", name)
	}
	before := c.process.PID()
	if err := c.process.Kill(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := s.prober.waitReady(ctx, c.ready); err != nil {
		return fmt.Errorf("%s did not come back: %w", name, err)
	}
	if after := c.process.PID(); after == before || after == 0 {
		return fmt.Errorf("%s answers, but not from a new process", name)
	}
	return nil
}
