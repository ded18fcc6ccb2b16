package certify

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/toolschema"
	"cofferdam.dev/tests/internal/forbidden"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/stack"
)

var update = flag.Bool("update", false, "write the golden files")

// The first thread is the main goroutine's alone: see forbidden.Within.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // nothing that comes later is sure to be on it

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == impostor.Argument {
		if err := impostor.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Geteuid() == 0 && os.Getenv(NetworkVariable) == "" {
		fmt.Fprintln(os.Stderr, "network namespace:", forbidden.EnterNetwork(NetworkVariable))
		os.Exit(1) // it returned, so it failed
	}
	goleak.VerifyTestMain(m)
}

// certified runs requirements on a stack, and gives what was printed.
func certified(t *testing.T, harness string, requirements ...int) (Document, []byte) {
	t.Helper()
	command := stack.Need(t)
	folder, err := os.MkdirTemp("", "cofferdam-cert-") //nolint:usetesting // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	var out bytes.Buffer
	doc, err := Run(t.Context(), Config{
		Command: command, Folder: folder, Harness: harness, Requirements: requirements, Bindings: 2, Out: &out, Progress: t.Output(),
	})
	if err != ErrNotCertified { //nolint:errorlint // the command takes it so: nothing else went wrong
		t.Fatalf("%v, want %v", err, ErrNotCertified)
	}
	return doc, out.Bytes()
}

// volatile is what differs from one run to the next.
var volatile = regexp.MustCompile(`sha256:[0-9a-f]{64}|"date":"[^"]*"|"(events|logs|places|attempts|spans)":[0-9]+`)

// On a sound installation what is checked passes, and what is not checked is not said to
// have.
func TestASoundStackPasses(t *testing.T) {
	if os.Geteuid() != 0 || os.Getenv(stack.WeakVariable) == "1" {
		t.Skip("NOT TESTED: it takes root, and all layers of isolation")
	}
	doc, out := certified(t, "scripted", fast()...)
	for _, r := range doc.Results {
		if want := expected(r.Requirement); r.Result != want {
			t.Errorf("requirement %d: %s (%s), want %s", r.Requirement, r.Result, r.Reason, want)
		}
	}
	got := volatile.ReplaceAll(out, []byte(`"…"`))
	golden := filepath.Join("testdata", "output.golden")
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("output differs from %s (%v); `go test -update` writes it:\n%s", golden, err, got)
	}
	inSchema(t, doc)
}

// fast are the requirements that take no longer than every change can wait.
func fast() []int { return []int{1, 2, 4, 5, 6, 7, 9, 10, 11, 14, 15} }

func expected(requirement int) Outcome {
	if requirement == 11 {
		return NotRun
	}
	return Passed
}

// inSchema checks the report against the published schema, and that the schema tells a
// report from what is none.
func inSchema(t *testing.T, doc Document) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "schemas", "certification-v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	schema, err := toolschema.Compile(raw)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.json")
	if err := doc.Write(path); err != nil {
		t.Fatal(err)
	}
	if raw, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if err := schema.CheckText(raw); err != nil {
		t.Error(err)
	}
	doc.Results[0].Result = "fine"
	if raw, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	if schema.CheckText(raw) == nil {
		t.Error("the schema takes any result")
	}
}
