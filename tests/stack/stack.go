package stack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
)

const (
	// startTimeout bounds how long a stack may take until it is ready.
	startTimeout = 3 * time.Minute
	// maxSaid is how much of what it says for people is kept.
	maxSaid = 256 << 10
	// GoneWithin is how long after its end a process of a stack may still be there.
	GoneWithin = 30 * time.Second
)

// User and Operator are the subjects that a local stack knows.
const (
	User     = "user-1"
	Operator = "operator"
	// Agent is the agent of a stack that was given no others.
	Agent = "demo"
)

// Ready is the line of a stack that answers.
type Ready struct {
	Ready    bool     `json:"ready"`
	API      string   `json:"api"`
	Operator string   `json:"operator"`
	Agents   []string `json:"agents"`
	// Replicas are the APIs of all replicas of the control plane, where there are
	// several.
	Replicas []string `json:"replicas"`
}

// Stack is a running `cofferdam up`.
type Stack struct {
	Ready
	// Line is the ready line as it came.
	Line []byte
	// Data is its data folder.
	Data string

	command string
	cmd     *exec.Cmd
	stderr  *tail
	extra   *tail         // of stdout after the ready line; complete once done is closed
	done    chan struct{} // closed when it has ended and its output is read
	waitErr error

	mu      sync.Mutex
	clients []*apiclient.Client
}

// WeakVariable, if it is 1, has the stacks of tests start on a machine that does
// not allow all layers of isolation. What those layers keep out is not tested then.
const WeakVariable = "COFFERDAM_TEST_WEAK_ISOLATION"

// Weak is the flag for WeakVariable, or nothing.
func Weak() []string {
	if os.Getenv(WeakVariable) == "1" {
		return []string{"--allow-weak-isolation"}
	}
	return nil
}

// Nobody is a user who is not root.
const Nobody = 65534

// Up starts `cofferdam up` on free ports with the data folder and the given
// further flags, and returns once it is ready. ctx bounds the wait alone; Stop
// must be called. It ends with the test binary, however that ends.
func Up(ctx context.Context, command, data string, flags ...string) (*Stack, error) {
	return up(ctx, nil, command, data, append(Weak(), flags...))
}

// UpAsNobody is Up for a user who is not root, and who cannot have all layers of
// isolation therefore. The data folder must be that user's.
func UpAsNobody(ctx context.Context, command, data string, flags ...string) (*Stack, error) {
	return up(ctx, &syscall.Credential{Uid: Nobody, Gid: Nobody}, command, data, flags)
}

func up(ctx context.Context, as *syscall.Credential, command, data string, flags []string) (*Stack, error) {
	args := append([]string{"up", "--listen", "127.0.0.1:0", "--data", data}, flags...)
	s := &Stack{
		Data: data, command: command, stderr: &tail{most: maxSaid}, extra: &tail{most: maxSaid}, done: make(chan struct{}),
		cmd: exec.CommandContext(context.WithoutCancel(ctx), command, args...),
	}
	s.cmd.Stderr = s.stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: as}
	started, first := make(chan error, 1), make(chan error, 1)
	go s.live(started, first)
	if err := <-started; err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var err error
	select {
	case err = <-first:
	case <-ctx.Done():
		err = fmt.Errorf("not ready: %w", ctx.Err())
	}
	if err == nil {
		err = json.Unmarshal(s.Line, &s.Ready)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cofferdam up: %w; it said:\n%s", err, s.Said()), s.Kill(), s.Gone(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// live starts the command, reads its output to the end, and waits for it.
func (s *Stack) live(started, first chan<- error) {
	defer close(s.done)
	// The kernel ends the command with the thread that started it, so this
	// goroutine keeps the thread for as long as the command lives.
	runtime.LockOSThread()
	stdout, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	started <- err
	if err != nil {
		return
	}
	r := bufio.NewReader(stdout)
	line, err := r.ReadSlice('\n') // of at most the reader's 4 KiB
	s.Line = bytes.Clone(bytes.TrimSuffix(line, []byte("\n")))
	if err == nil {
		first <- nil
	}
	_, copied := io.Copy(s.extra, r)
	s.waitErr = s.cmd.Wait()
	if err != nil {
		first <- fmt.Errorf("no ready line: %w", errors.Join(err, copied, s.waitErr))
	}
}

// PID is the id of the command itself.
func (s *Stack) PID() int { return s.cmd.Process.Pid }

// Said is what it told people so far.
func (s *Stack) Said() string { return s.stderr.String() }

// Processes are all that belong to it now.
func (s *Stack) Processes() ([]procs.Process, error) { return procs.Of(s.PID(), s.Data) }

// Program gives the one process of it that runs a program, such as "modelproxy".
func (s *Stack) Program(name string) (procs.Process, error) {
	all, err := s.Processes()
	if err != nil {
		return procs.Process{}, err
	}
	var found []procs.Process
	for _, p := range all {
		if p.Program() == name && p.Alive() {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return procs.Process{}, fmt.Errorf("%d processes of the stack are %s, want 1", len(found), name)
	}
	return found[0], nil
}

// KillOne sends a signal to one of the processes that run a program, by chance, and
// reports whether there was one.
func (s *Stack) KillOne(program string, sig syscall.Signal) bool {
	all, err := s.Processes()
	if err != nil {
		return false // one of them ended while it was looked at
	}
	all = slices.DeleteFunc(all, func(p procs.Process) bool { return p.Program() != program || !p.Alive() })
	if len(all) == 0 {
		return false
	}
	return syscall.Kill(all[rand.IntN(len(all))].PID, sig) == nil //nolint:gosec // chance, not secrets
}

// Terminate sends SIGTERM and waits until the command has ended, bounded by ctx.
// The error is how it ended, nil after exit status 0.
func (s *Stack) Terminate(ctx context.Context) error {
	s.closeClients()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !s.ended() {
		return err
	}
	select {
	case <-s.done:
		return s.waitErr
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("not ended after SIGTERM: %w", ctx.Err()), s.Kill())
	}
}

// Kill sends SIGKILL to the command alone and waits until it has ended.
func (s *Stack) Kill() error {
	s.closeClients()
	if err := s.cmd.Process.Kill(); err != nil && !s.ended() {
		return err
	}
	<-s.done
	return nil
}

func (s *Stack) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// After is what it wrote to stdout after the ready line. It must have ended.
func (s *Stack) After() []byte {
	<-s.done
	return []byte(s.extra.String())
}

// Stop ends the stack in order and sees that nothing of it is left. It can be
// repeated.
func (s *Stack) Stop(ctx context.Context) error {
	before, err := s.Processes()
	ctx, cancel := context.WithTimeout(ctx, 2*GoneWithin)
	defer cancel()
	return errors.Join(err, s.Terminate(ctx), s.Gone(ctx, before...))
}

// Gone waits until no process of the stack is left, nor one of those that were
// seen before, for at most [GoneWithin].
func (s *Stack) Gone(ctx context.Context, before ...procs.Process) error {
	ctx, cancel := context.WithTimeout(ctx, GoneWithin)
	defer cancel()
	var left []procs.Process
	err := Until(ctx, func() (bool, error) {
		now, err := procs.Of(s.PID(), s.Data)
		if err != nil {
			return false, err
		}
		left = left[:0]
		for _, p := range append(now, before...) {
			if p.Alive() {
				left = append(left, p)
			}
		}
		return len(left) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("left after %v: %v (%w)", GoneWithin, left, err)
	}
	return nil
}

// Token makes a token of the subject with `cofferdam token` and gives the file
// with its header line.
func (s *Stack) Token(ctx context.Context, subject string) (string, error) {
	file := filepath.Join(s.Data, "token-"+subject+".txt")
	return file, run(ctx, s.command, "token", "--subject", subject, "--data", s.Data, "--out", file)
}

// Client calls the public API as the subject. It is closed with the stack.
func (s *Stack) Client(ctx context.Context, subject string) (*apiclient.Client, error) {
	return s.client(ctx, s.API, subject)
}

// ReplicaClient calls the public API of one of Replicas as the subject.
func (s *Stack) ReplicaClient(ctx context.Context, replica int, subject string) (*apiclient.Client, error) {
	return s.client(ctx, s.Replicas[replica], subject)
}

// Replica gives the process of one of Replicas.
func (s *Stack) Replica(replica int) (procs.Process, error) {
	name := "controlplane"
	if replica > 0 {
		name += "-" + strconv.Itoa(replica+1)
	}
	all, err := s.Processes()
	if err != nil {
		return procs.Process{}, err
	}
	for _, p := range all {
		if at := slices.Index(p.Args, "--replica"); at >= 0 && at+1 < len(p.Args) && p.Args[at+1] == name && p.Alive() {
			return p, nil
		}
	}
	return procs.Process{}, fmt.Errorf("replica %s does not run now", name)
}

// OperatorClient calls the operators' API as the subject.
func (s *Stack) OperatorClient(ctx context.Context, subject string) (*apiclient.Client, error) {
	return s.client(ctx, s.Operator, subject)
}

func (s *Stack) client(ctx context.Context, base, subject string) (*apiclient.Client, error) {
	file := ""
	if subject != "" {
		var err error
		if file, err = s.Token(ctx, subject); err != nil {
			return nil, err
		}
	}
	c, err := apiclient.New(base, file)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c, nil
}

func (s *Stack) closeClients() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.Close()
	}
}

// run runs the command; its error has what the command said.
func run(ctx context.Context, command string, args ...string) error {
	said := &tail{most: maxSaid}
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Stderr = said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cofferdam %s: %w: %s", args[0], err, said)
	}
	return nil
}
