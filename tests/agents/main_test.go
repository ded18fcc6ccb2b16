package agents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// mostSandboxes is room for the conversations of all tests: each keeps its
// sandbox.
const mostSandboxes = 256

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code := m.Run()
	defer unplace()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "the shared stack:", err)
		code = 1
	}
	fmt.Print(times.String())
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// world is the stack that all tests share.
type world struct {
	*stack.Stack

	user, operator *apiclient.Client
	folder         string // of everything; short, since sockets stand in it
}

var shared struct {
	sync.Mutex

	world *world
	err   error
}

// theStack gives the shared stack, which the first test that asks starts.
func theStack(t *testing.T) *world {
	t.Helper()
	command := stack.Need(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.world == nil && shared.err == nil {
		begun := time.Now()
		shared.world, shared.err = open(command)
		t.Logf("started the stack in %v", time.Since(begun).Round(time.Millisecond))
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.world
}

func open(command string) (_ *world, err error) {
	ctx := context.Background()
	w := &world{}
	if w.folder, err = os.MkdirTemp("", "cofferdam-agents-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	flags, err := configure(w.folder)
	if err != nil {
		return nil, err
	}
	flags = append(flags, "--max-sandboxes", strconv.Itoa(mostSandboxes), "--log-level", "debug")
	if w.Stack, err = stack.Up(ctx, command, filepath.Join(w.folder, "data"), flags...); err != nil {
		return nil, err
	}
	if w.user, err = w.Client(ctx, stack.User); err != nil {
		return nil, err
	}
	w.operator, err = w.OperatorClient(ctx, stack.Operator)
	return w, err
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
