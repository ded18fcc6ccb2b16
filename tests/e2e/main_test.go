package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/gate"
	"cofferdam.dev/tests/stack"
)

// gateArgument as first argument makes this test binary the MCP server gate; the
// second is its folder.
const gateArgument = "mcp-gate"

// gateTimeout bounds a call of the gate, and so how long one whose outcome is
// unknown is waited for. Whoever was called has so long to be killed in the midst
// of it, also on a busy machine.
const gateTimeout = "10s"

// toolCredential is what the gate is given, through a file that only the
// ToolBroker reads.
const toolCredential = "tool-credential-canary-7f3a9c51e0d24b86" //nolint:gosec // opens nothing

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == gateArgument {
		if err := gate.Serve(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "the shared stack:", err)
		code = 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// world is the stack that most tests share.
type world struct {
	*stack.Stack
	user, operator *apiclient.Client
	gate           gate.Gate
	folder         string       // of everything; short, since sockets stand in it
	talks          atomic.Int64 // conversations so far, each of which keeps its sandbox
}

// enough is after how many conversations a stack is not used any further: it has
// room for 64 sandboxes, and the tests may be run more than once.
const enough = 24

var shared struct {
	sync.Mutex
	world *world
	users int
	err   error
}

// theStack gives the shared stack, which the first test that asks starts. It is
// ended when nobody uses it any more and it has seen enough.
func theStack(t *testing.T) *world {
	t.Helper()
	command := stack.Need(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.world == nil && shared.err == nil {
		begun := time.Now()
		shared.world, shared.err = open(command)
		t.Logf("started the shared stack in %v", time.Since(begun).Round(time.Millisecond))
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	shared.users++
	t.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.users--; shared.users > 0 || shared.world.talks.Load() < enough {
			return
		}
		if err := shared.world.close(); err != nil {
			t.Errorf("the shared stack: %v", err)
		}
		shared.world = nil
	})
	return shared.world
}

// open starts a stack with the gate and the given further flags.
func open(command string, flags ...string) (_ *world, err error) {
	ctx := context.Background()
	w := &world{}
	if w.folder, err = os.MkdirTemp("", "cofferdam-e2e-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	config, err := w.openGate()
	if err != nil {
		return nil, err
	}
	if w.Stack, err = stack.Up(ctx, command, filepath.Join(w.folder, "data"), append(flags, "--mcp-config", config, "--log-level", "debug")...); err != nil {
		return nil, err
	}
	if w.user, err = w.Client(ctx, stack.User); err != nil {
		return nil, err
	}
	w.operator, err = w.OperatorClient(ctx, stack.Operator)
	return w, err
}

// openGate gives the file that configures the gate as a further MCP server.
func (w *world) openGate() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	w.gate.Folder = filepath.Join(w.folder, "gate")
	// The server is another user, who shares this folder of a closed one.
	if err := errors.Join(os.Mkdir(w.gate.Folder, 0o700), os.Chmod(w.gate.Folder, 0o777)); err != nil {
		return "", err
	}
	credential := filepath.Join(w.folder, "credential")
	if err := os.WriteFile(credential, []byte(toolCredential+"\n"), 0o600); err != nil {
		return "", err
	}
	raw, err := json.Marshal(map[string]any{"servers": []any{map[string]any{
		"namespace": "gate", "transport": "stdio", "command": []string{self, gateArgument, w.gate.Folder},
		"tools": []string{gate.ToolPass, gate.ToolFingerprint, gate.ToolAsk}, "tool_options": map[string]any{gate.ToolAsk: map[string]any{"read_only": true}}, "timeout": gateTimeout, "write_folders": []string{w.gate.Folder},
		"credential": map[string]any{"source": "file", "path": credential, "env": gate.CredentialVariable},
	}}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(w.folder, "mcp.json")
	return path, os.WriteFile(path, raw, 0o600)
}

func (w *world) close() error {
	var err error
	if w.Stack != nil {
		err = w.Stop(context.Background())
	}
	return errors.Join(err, os.RemoveAll(w.folder))
}

func closeShared() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.world == nil {
		return nil
	}
	return shared.world.close()
}
