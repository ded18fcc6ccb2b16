package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/deploy/local/internal/apiclient"
	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/issuer"
	"cofferdam.dev/pkg/fault"
)

var update = flag.Bool("update", false, "write the golden files")

// cofferdam runs a command line.
func cofferdam(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	code = Main(t.Context(), args, Env{Stdin: os.Stdin, Stdout: &out, Stderr: &err, BinDir: t.TempDir()})
	return code, out.String(), err.String()
}

func TestHelpIsTheGolden(t *testing.T) {
	var all strings.Builder
	for _, args := range [][]string{{"help"}, {"up", "-h"}, {"run", "--help"}, {"help", "demo"}, {"chat", "-h"}, {"token", "-h"}, {"bindings", "-h"}, {"runs", "-h"}, {"cluster", "-h"}, {"certify", "-h"}} {
		code, stdout, stderr := cofferdam(t, args...)
		if code != exitOK || stderr != "" {
			t.Errorf("%v: %d, %q", args, code, stderr)
		}
		fmt.Fprintf(&all, "$ cofferdam %s\n%s\n", strings.Join(args, " "), stdout)
	}
	golden := filepath.Join("testdata", "help.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(all.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if all.String() != string(want) {
		t.Errorf("help differs from %s; `go test -update` writes it:\n%s", golden, all.String())
	}
}

func TestCommandLinesThatAreWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "COMMAND"},
		{[]string{"fly"}, exitUsage, `no command "fly"`},
		{[]string{"help", "fly"}, exitUsage, `no command "fly"`},
		{[]string{"up", "--fly"}, exitUsage, "-fly"},
		{[]string{"up", "now"}, exitUsage, `"now"`},
		{[]string{"token"}, exitUsage, "--subject"},
		{[]string{"token", "--subject", "x", "--ttl", "48h"}, exitUsage, "--ttl"},
		{[]string{"token", "--subject", "x", "--data", "/nowhere"}, exitFailed, "cofferdam up"},
		{[]string{"chat", "--data", "/nowhere"}, exitFailed, "cofferdam up"},
		{[]string{"bindings", "--data", "/nowhere"}, exitFailed, "cofferdam up"},
		{[]string{"runs", "--data", "/nowhere"}, exitFailed, "cofferdam up"},
		{[]string{"runs", "--show", "run_1", "--tail", "run_1"}, exitUsage, "--show, --cancel and --tail"},
		{[]string{"up", "--listen", "0.0.0.0:1"}, exitFailed, "loopback"},
		{[]string{"demo"}, exitFailed, "make build"},
		{[]string{"certify"}, exitFailed, "make build"},
		{[]string{"certify", "--bindings", "1"}, exitUsage, "--bindings"},
	} {
		code, stdout, stderr := cofferdam(t, c.args...)
		if code != c.code || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("%v: %d %q %q, want %d and %q", c.args, code, stdout, stderr, c.code, c.want)
		}
	}
}

func TestADemoThatCannotBeginLeavesNoFolder(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	if code, _, _ := cofferdam(t, "demo"); code != exitFailed {
		t.Errorf("exit %d", code)
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "cofferdam-demo-*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// folder is a data folder with keys.
func folder(t *testing.T) datadir.Dir {
	t.Helper()
	d, err := datadir.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := issuer.Open(d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestATokenGoesToStdoutOrIntoAFileForCurl(t *testing.T) {
	d := folder(t)
	code, stdout, stderr := cofferdam(t, "token", "--subject", "user-1", "--data", d.Path())
	if code != exitOK || strings.Count(stdout, ".") != 2 || strings.ContainsAny(strings.TrimSuffix(stdout, "\n"), " \n") {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	out := filepath.Join(t.TempDir(), "token.txt")
	if err := os.WriteFile(out, []byte("old and readable"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(out, 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = cofferdam(t, "token", "--subject", "user-1", "--data", d.Path(), "--out", out)
	if code != exitOK || stdout+stderr != "" {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	content, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := strings.CutPrefix(string(content), "Authorization: Bearer ")
	if !ok || strings.Count(rest, ".") != 2 || !strings.HasSuffix(rest, "\n") || strings.Count(rest, "\n") != 1 {
		t.Errorf("%d bytes that are no header line", len(content))
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestBindingsAreATable(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := map[string]any{"binding_id": "hs_1", "agent_id": "demo", "agent_version": 1, "lease_generation": 2, "updated_at": at, "lease": map[string]any{"state": "bound"}, "sandbox": map[string]any{"pid": 42}, "run": map[string]any{"run_id": "r"}, "fence_refusals": []any{map[string]any{}}}
		second := map[string]any{"binding_id": "hs_2", "agent_id": "demo", "agent_version": 3, "updated_at": at}
		page := map[string]any{"bindings": []any{}}
		switch r.URL.Query().Get("after") {
		case "":
			page = map[string]any{"bindings": []any{first}, "next_cursor": "hs_1"}
		case "hs_1":
			page = map[string]any{"bindings": []any{second}, "next_cursor": "hs_2"}
		}
		if err := json.NewEncoder(w).Encode(page); err != nil {
			t.Error(err)
		}
	}))
	defer ts.Close()
	d := folder(t)
	if err := d.SetRunning(datadir.Running{Operator: ts.URL}); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := cofferdam(t, "bindings", "--data", d.Path())
	want := `BINDING  AGENT    EPOCH  GENERATION  LEASE  PROCESS  RUN  REVISION  REFUSED  CHANGED
hs_1     demo v1  0      2           bound  42       r    0         1        2026-01-02T03:04:05Z
hs_2     demo v3  0      0           -      -        -    0         0        2026-01-02T03:04:05Z
`
	if code != exitOK || stdout != want {
		t.Errorf("%d %q\n%s\nwant\n%s", code, stderr, stdout, want)
	}
}

func TestWhatPeopleAreTold(t *testing.T) {
	refused := fault.New(fault.AccessDenied, "internal.operation", fault.Detail("agent: demo"))
	for _, c := range []struct {
		err        error
		want, lack string
	}{
		{fmt.Errorf("turn: %w", refused), "The caller may not do this. Ask an administrator for access. (agent: demo) [access_denied, incident " + refused.Incident() + "]", "internal.operation"},
		{fmt.Errorf("dial: %w", syscall.ECONNREFUSED), "is `cofferdam up` running", ""},
		{usage("--x: required"), "--x: required", "usage"},
	} {
		got := explain(c.err)
		if !strings.Contains(got, c.want) || (c.lack != "" && strings.Contains(got, c.lack)) {
			t.Errorf("%q", got)
		}
	}
}

func TestAnEndThatWasAskedForIsNone(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name  string
		asked bool
		err   error
		want  bool
	}{
		{"interrupted", true, fmt.Errorf("toolbroker: %w", context.Canceled), false},
		{"well", true, nil, false},
		{"a failure on the way out", true, errors.New("something else"), true},
		{"nobody asked", false, context.Canceled, true},
	} {
		ctx := t.Context()
		if c.asked {
			ctx = over
		}
		if got := ended(ctx, c.err); (got != nil) != c.want {
			t.Errorf("%s: %v became %v", c.name, c.err, got)
		}
	}
}

func TestTheCommandsOfRunAreCommands(t *testing.T) {
	file := "/tmp/a folder/it's/header.txt"
	script := curls(file, "http://127.0.0.1:1", "demo", "c-1", "run_1")
	// A shell reads them as curl would get them.
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), sh, "-c", `curl() { for a in "$@"; do printf '%s\n' "$a"; done; echo; }`+"\n"+script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	calls := strings.Split(strings.TrimSpace(string(out)), "\n\n")
	if len(calls) != 3 {
		t.Fatalf("%d commands: %s", len(calls), out)
	}
	for i, want := range []string{"http://127.0.0.1:1/api/v1/runs", "http://127.0.0.1:1/api/v1/runs/run_1/stream?protocol=canonical", "http://127.0.0.1:1/api/v1/agents/demo/agui"} {
		args := strings.Split(calls[i], "\n")
		if args[len(args)-1] != want || args[2] != "@"+file {
			t.Errorf("%q", args)
		}
		for j, a := range args {
			if a == "-d" && !json.Valid([]byte(args[j+1])) {
				t.Errorf("not JSON: %s", args[j+1])
			}
		}
	}
	var start apiclient.StartRequest
	args := strings.Split(calls[0], "\n")
	if err := json.Unmarshal([]byte(args[len(args)-2]), &start); err != nil || start.AgentID != "demo" || start.ConversationID != "c-1" {
		t.Errorf("%+v, %v", start, err)
	}
}
