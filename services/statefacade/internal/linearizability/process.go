package linearizability

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// call and answer are lines of a process: what a client is about to do, written
// before it does it, and what it was told.
type message struct {
	Client  int        `json:"client"`
	Op      *Operation `json:"op,omitempty"`
	Outcome *Outcome   `json:"outcome,omitempty"`
	At      int64      `json:"at"`
}

// Serve has the clients of one process do what the plan on stdin says, and writes
// what they do to stdout, one line of JSON each. It is what a client process is.
func Serve(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	var p plan
	if err := json.NewDecoder(stdin).Decode(&p); err != nil {
		return err
	}
	var mu sync.Mutex
	return clients(ctx, p, func(m message) error {
		line, err := json.Marshal(m)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		_, err = stdout.Write(append(line, '\n')) // one write, so that a kill leaves no half line
		return err
	})
}

// clients run until all have made their operations.
func clients(ctx context.Context, p plan, say func(message) error) (err error) {
	s, err := openStores(ctx, p.Store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	said := func(m message) {
		if err := say(m); err != nil {
			fail(err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for n := range p.Clients {
		c := newClient(p, p.First+n, s)
		c.called = func(client int, op Operation, at int64) { said(message{Client: client, Op: &op, At: at}) }
		c.ended = func(client int, o Outcome, at int64) { said(message{Client: client, Outcome: &o, At: at}) }
		group.Go(func() error { return c.run(ctx) })
	}
	return group.Wait()
}

// process is a client process.
type process struct {
	cmd *exec.Cmd
	out io.ReadCloser
}

// spawn starts one that ends with ctx at the latest.
func spawn(ctx context.Context, command []string, p plan, stderr io.Writer) (*process, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // this very program
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(in).Encode(p); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return &process{cmd, out}, nil
}

// listen reads what the process says until it ends.
func (p *process) listen(heard func(message)) error {
	lines := bufio.NewScanner(p.out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return errors.Join(err, p.cmd.Process.Kill(), p.cmd.Wait())
		}
		heard(m)
	}
	return errors.Join(lines.Err(), p.cmd.Wait())
}
