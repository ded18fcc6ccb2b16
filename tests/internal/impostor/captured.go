package impostor

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
)

// Argument makes a program an impostor, as its only one.
const Argument = "cofferdam-impostor"

// Captured is a binding in the middle of a run, with all that can be taken from the
// memory of its worker.
type Captured struct {
	Worker procs.Process
	// User of the worker on the host.
	User     int
	Binding  apiclient.Binding
	Envelope fence.Envelope
	// Tokens of the run, by audience.
	Tokens map[capability.Audience]string
	// Handles of files that one of them names.
	Handles []string
}

// Capture looks into the worker of a run as only the host can. A worker without the
// tokens that each run has is an error: nothing could be shown with it.
func Capture(b apiclient.Binding, worker procs.Process, run apiclient.Started) (Captured, error) {
	if b.Sandbox == nil {
		return Captured{}, fmt.Errorf("binding %s has no sandbox", b.BindingID)
	}
	got := Captured{Worker: worker, Binding: b, Tokens: map[capability.Audience]string{}, Envelope: fence.Envelope{
		BindingID: run.BindingID, Epoch: run.Epoch, Generation: b.Generation, RunID: run.RunID, RequestID: "req-impostor", IdempotencyKey: "key-impostor",
	}}
	var err error
	if got.User, err = UserOf(worker); err != nil {
		return got, err
	}
	const longest = 8 << 10
	err = procs.Memory(worker.PID, longest, func(part []byte) {
		for _, token := range tokens.FindAll(part, -1) {
			c := claims(token)
			if c.RunID == run.RunID {
				got.Tokens[c.Audience] = string(token)
				got.Handles = append(got.Handles, c.Handles...)
			}
		}
	})
	if err != nil {
		return got, err
	}
	for _, audience := range []capability.Audience{capability.ThreadState, capability.Memory, capability.ModelProxy} {
		if got.Tokens[audience] == "" {
			return got, fmt.Errorf("the memory of worker %d has no token for %s, so that nothing is shown", worker.PID, audience)
		}
	}
	return got, nil
}

// tokens matches a compact JWS whose signature has 64 bytes, as those of capabilities
// have: what stands behind it in memory may be anything.
var tokens = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{86}`)

// said is what a token says, as far as it is of use here.
type said struct {
	Audience capability.Audience `json:"aud"`
	RunID    string              `json:"run_id"`
	Handles  []string            `json:"handles"`
}

// claims are what a token says, without a look at its signature.
func claims(token []byte) (c said) {
	parts := bytes.Split(token, []byte("."))
	raw, err := base64.RawURLEncoding.DecodeString(string(parts[1]))
	if err != nil || json.Unmarshal(raw, &c) != nil {
		return said{}
	}
	return c
}

// Impostor is one that runs. It is for one goroutine.
type Impostor struct {
	cmd        *exec.Cmd
	in         *json.Encoder
	closeIn    func() error
	out        *json.Decoder
	complained bytes.Buffer
}

// Start starts an impostor of the worker as a user of the host, from this very
// program. other maps names of further sockets, as "worker/UID", to their paths. It ends
// with [Impostor.Close], or with ctx.
func (c Captured) Start(ctx context.Context, user int, other map[string]string) (*Impostor, error) {
	names, paths := []string{}, []string{}
	for _, name := range []string{"workload", "capability", "toolbroker", "statefacade", "filebroker", "modelproxy"} {
		names, paths = append(names, name), append(paths, Inside(c.Worker, "run", "cofferdam", name+".sock"))
	}
	for name, path := range other {
		names, paths = append(names, name), append(paths, path)
	}
	return start(ctx, nil, pretence{User: user, ID: c.Binding.Sandbox.SPIFFEID, Sockets: names}, paths)
}

// StartInPod starts an impostor of a worker that is a pod: as its user, with its Workload
// API, and in the network of a process. That is the worker's own, or, for an impostor that is to outlive its pod, whose
// network ends with it, another sandbox's. The services are at addresses, by their names, as https://host:port.
func (c Captured) StartInPod(ctx context.Context, network procs.Process, addresses map[string]string) (*Impostor, error) {
	there := []string{"nsenter", "--target", strconv.Itoa(network.PID), "--net", "--"}
	p := pretence{User: c.User, ID: c.Binding.Sandbox.SPIFFEID, Sockets: []string{"workload"}, Addresses: addresses}
	return start(ctx, there, p, []string{Inside(c.Worker, "spiffe-workload-api", "spire-agent.sock")})
}

// start runs this very program as an impostor, by another one that runs it if there is one. It inherits the sockets.
func start(ctx context.Context, by []string, p pretence, sockets []string) (_ *Impostor, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	argv := slices.Concat(by, []string{self, Argument})
	i := &Impostor{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	i.cmd.Stderr = &i.complained
	defer func() {
		for _, file := range i.cmd.ExtraFiles {
			_ = file.Close() // the process has its own
		}
	}()
	for _, path := range sockets {
		file, err := pathOnly(path)
		if err != nil {
			return nil, err
		}
		i.cmd.ExtraFiles = append(i.cmd.ExtraFiles, file)
	}
	in, err := i.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := i.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := i.cmd.Start(); err != nil {
		return nil, err
	}
	i.in, i.closeIn, i.out = json.NewEncoder(in), in.Close, json.NewDecoder(out)
	if err := i.in.Encode(p); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// Make makes calls and gives what came of each.
func (i *Impostor) Make(calls ...Call) (said []string, err error) {
	if err = i.in.Encode(calls); err == nil {
		err = i.out.Decode(&said)
	}
	if err == nil && len(said) != len(calls) {
		err = fmt.Errorf("%d answers to %d calls", len(said), len(calls))
	}
	return said, err
}

// Close ends the impostor. Its error has what it complained of.
func (i *Impostor) Close() error {
	_ = i.closeIn() // it may have gone
	if err := i.cmd.Wait(); err != nil {
		return fmt.Errorf("impostor: %w: %s", err, i.complained.String())
	}
	return nil
}

// SocketOf is where the worker of an instance listens, for the control plane.
func SocketOf(data, uid string) string {
	const named = 16
	return filepath.Join(data, "run", "w", strings.ToLower(uid[:named])+".sock")
}

// UserOf is the user on the host that a process is.
func UserOf(p procs.Process) (int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(raw), "\nUid:\t")
	first, _, found := strings.Cut(rest, "\t")
	if !found {
		return 0, fmt.Errorf("%s: no Uid", p)
	}
	return strconv.Atoi(first)
}

// Inside is a path of a process's world as the host sees it.
func Inside(p procs.Process, elem ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(p.PID), "root"}, elem...)...)
}

// pathOnly opens a socket without connecting, so that it can be connected to by
// who cannot go its way.
func pathOnly(path string) (*os.File, error) {
	const pathFlag = 0x200000 // O_PATH, which package syscall does not have
	fd, err := syscall.Open(path, pathFlag|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}
