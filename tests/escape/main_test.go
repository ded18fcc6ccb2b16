package escape

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/tests/internal/forbidden"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/stack"
)

// networkVariable says that this process is in a network namespace of its own.
const networkVariable = "COFFERDAM_TEST_ESCAPE_NETWORK"

// The first thread is TestMain's alone. A test that enters another network does so on
// a thread that ends with it; the first one cannot end, and what it is in is what
// /proc says of the whole process.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // nothing that comes later is sure to be on it

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == impostor.Argument {
		if err := impostor.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if unable() == "" && os.Getenv(networkVariable) == "" {
		fmt.Fprintln(os.Stderr, "network namespace:", forbidden.EnterNetwork(networkVariable))
		os.Exit(1) // it returned, so it failed
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

// unable says why nothing can be shown here.
func unable() string {
	switch {
	case os.Getenv(stack.WeakVariable) == "1":
		return stack.WeakVariable + " is set: sandboxes are weak here"
	case os.Geteuid() != 0:
		return "sandboxes of full strength, and a network namespace, take root"
	default:
		return ""
	}
}

// needs skips a test that can show nothing here. On a build machine that was not
// told that its sandboxes are weak, it fails.
func needs(t *testing.T) {
	t.Helper()
	why := unable()
	switch {
	case why == "":
	case os.Getenv("CI") == "true" && os.Getenv(stack.WeakVariable) != "1":
		t.Fatal(why)
	default:
		t.Skip("NOT TESTED: " + why)
	}
}
