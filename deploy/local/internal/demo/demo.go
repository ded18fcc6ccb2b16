// Package demo is a conversation of two turns that shows what Cofferdam is for.
//
// In the first turn the agent reads a file through a tool and says what is in it.
// Then its worker is killed, and the model proxy with it. The second turn runs in
// another sandbox on the next lease generation, and the agent still knows what it
// read: from the committed thread state, since nothing else is left.
//
// The demo checks its own outcome and writes every event as a line of JSON.
package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"cofferdam.dev/deploy/local/internal/apiclient"
)

// Bounds of the parts of a demo.
const (
	turnTimeout   = 60 * time.Second
	noticeTimeout = 30 * time.Second
	killTimeout   = 30 * time.Second
	noticeAgain   = 20 * time.Millisecond
	maxSample     = 64 << 10
)

// Config of a demo.
type Config struct {
	// API is that of a user who may invoke Agent, Operator that of an operator.
	API, Operator *apiclient.Client
	Agent         string
	// KillWorker ends the worker that a binding shows, without warning, and says what
	// it was for people: KillProcess on this machine.
	KillWorker func(context.Context, apiclient.Binding) (what string, err error)
	// RestartModelProxy kills the model proxy and waits until it is back.
	RestartModelProxy func(context.Context) error
	// Sample is the folder that the tools of namespace fs serve, or a copy of it, and
	// File the one in it that is read: text, whose first line is looked for.
	Sample, File string
	// Out gets nothing but one line of JSON for each event; People is told the
	// rest.
	Out, People io.Writer
}

// Run plays the two turns. It returns nil only if all that the package promises
// was seen.
func Run(ctx context.Context, cfg Config) error {
	line, err := firstLine(filepath.Join(cfg.Sample, cfg.File))
	if err != nil {
		return fmt.Errorf("demo: sample file: %w", err)
	}
	d := &demo{cfg: cfg, conversation: "demo-" + rand.Text(), out: json.NewEncoder(cfg.Out)}
	d.out.SetEscapeHTML(false) // an event goes out as it came
	path, err := json.Marshal(map[string]string{"path": cfg.File})
	if err != nil {
		return err
	}
	d.say("turn 1: the agent is asked to read %s through a tool", cfg.File)
	first, err := d.turn(ctx, 1, fmt.Sprintf("Please read %s and tell me what it says.\n>>call fs.read_text_file %s", cfg.File, path))
	if err != nil {
		return err
	}
	if err := first.checkFirst(line); err != nil {
		return fmt.Errorf("demo: turn 1: %w", err)
	}
	if err := d.loseEverything(ctx, first); err != nil {
		return err
	}
	d.say("turn 2: the agent is asked what it remembers")
	second, err := d.turn(ctx, 2, "What do you remember of our conversation?")
	if err != nil {
		return err
	}
	if err := second.checkSecond(first, line); err != nil {
		return fmt.Errorf("demo: turn 2: %w", err)
	}
	d.say("the agent remembers: %q", line)
	return nil
}

type demo struct {
	cfg          Config
	conversation string
	out          *json.Encoder
}

func (d *demo) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.cfg.People, format+"\n", args...) // who has closed stderr wants to hear nothing
}

// loseEverything kills the worker of a turn, waits until the control plane has
// noticed by itself, and kills the model proxy.
func (d *demo) loseEverything(ctx context.Context, t *turn) error {
	b, err := d.cfg.Operator.Binding(ctx, t.binding)
	if err != nil {
		return fmt.Errorf("demo: binding: %w", err)
	}
	if b.Generation != t.generation || b.Sandbox == nil {
		return fmt.Errorf("demo: binding %s shows no worker of generation %d to kill", t.binding, t.generation)
	}
	killed := time.Now()
	dying, done := context.WithTimeout(ctx, killTimeout)
	what, err := d.cfg.KillWorker(dying, b)
	done()
	if err != nil {
		return fmt.Errorf("demo: kill the worker: %w", err)
	}
	d.say("its worker, %s, was killed", what)
	if err := d.waitGeneration(ctx, t); err != nil {
		return err
	}
	d.say("the control plane noticed after %d ms: lease generation %d", time.Since(killed).Milliseconds(), t.generation+1)
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	if err := d.cfg.RestartModelProxy(ctx); err != nil {
		return fmt.Errorf("demo: restart the model proxy: %w", err)
	}
	d.say("the model proxy was killed as well, and is back")
	return nil
}

// KillProcess kills the worker of a sandbox on this machine.
func KillProcess(_ context.Context, b apiclient.Binding) (string, error) {
	if b.Sandbox.PID <= 1 {
		return "", fmt.Errorf("binding %s shows no process", b.BindingID)
	}
	return fmt.Sprintf("process %d", b.Sandbox.PID), syscall.Kill(b.Sandbox.PID, syscall.SIGKILL)
}

// waitGeneration waits until the committed record has the next generation.
func (d *demo) waitGeneration(ctx context.Context, t *turn) error {
	ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	for {
		b, err := d.cfg.Operator.Binding(ctx, t.binding)
		switch {
		case err != nil:
			return fmt.Errorf("demo: binding: %w", err)
		case b.Generation == t.generation+1:
			return nil
		case b.Generation != t.generation:
			return fmt.Errorf("demo: the binding went from generation %d to %d", t.generation, b.Generation)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("demo: the control plane did not notice within %v that the worker is gone: %w", noticeTimeout, ctx.Err())
		case <-time.After(noticeAgain):
		}
	}
}

// firstLine is what the demo looks for: the first line of a small text file.
func firstLine(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxSample))
	if err = errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line != "" {
			return line, nil
		}
	}
	return "", fmt.Errorf("%s has no text to look for", path)
}
