package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

// What people are told to type is typed here, as it is printed.

const (
	readme = "../../README.md"
	// printedAddress is that of a stack which was started without --listen.
	printedAddress = "http://127.0.0.1:7433"
)

// commands gives the shell commands in the fenced blocks of a text, each with its
// continuation lines.
func commands(text string) (found []string) {
	in, command := false, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			in = line == "```sh"
		case !in || strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		default:
			command += line
			if rest, more := strings.CutSuffix(command, `\`); more {
				command = rest
				continue
			}
			found, command = append(found, command), ""
		}
	}
	return found
}

// shell runs a command in a folder and gives its stdout.
func shell(t *testing.T, folder, command string, env ...string) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("NOT TESTED: what is printed for people needs curl: " + err.Error())
	}
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s\n%v\n%s%s", command, err, stdout.String(), stderr.String())
	}
	if strings.Contains(stdout.String(), `{"error":`) {
		t.Errorf("%s\nanswered %s", command, stdout.String())
	}
	return stdout.String()
}

func TestTheCommandsOfTheREADMEWork(t *testing.T) {
	t.Parallel()
	command := stack.Need(t)
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := bytes.Cut(text, []byte("## Use it\n"))
	section, _, end := bytes.Cut(text, []byte("\n### "))
	if !ok || !end {
		t.Fatal("README.md has no section `Use it`")
	}
	folder := shortFolder(t)
	if err := os.Symlink(filepath.Dir(command), filepath.Join(folder, "bin")); err != nil {
		t.Fatal(err)
	}
	s, err := stack.Up(t.Context(), command, filepath.Join(folder, ".cofferdam")) // where it is without --data
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, s)
	const table = "a,b\n1,2\n"
	if err := os.WriteFile(filepath.Join(folder, "table.csv"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	run, fileID, curls := "", "", 0
	for _, c := range commands(string(section)) {
		c = strings.ReplaceAll(c, printedAddress, s.API)
		switch {
		case strings.HasPrefix(c, "curl "):
			curls++
			out := shell(t, folder, c, "RUN="+run, "FILE_ID="+fileID)
			switch {
			case strings.Contains(c, "/api/v1/files?"):
				var stored struct {
					ID   string `json:"file_id"`
					Size int    `json:"size"`
				}
				if err := json.Unmarshal([]byte(out), &stored); err != nil || stored.Size != len(table) {
					t.Fatalf("%s\nanswered %s", c, out)
				}
				fileID = stored.ID
			case strings.Contains(c, "/api/v1/files/"):
				if got, err := os.ReadFile(filepath.Join(folder, "got.csv")); err != nil || string(got) != table {
					t.Errorf("%s\ngave %q, %v", c, got, err)
				}
			case run == "":
				var started struct {
					RunID string `json:"run_id"`
				}
				if err := json.Unmarshal([]byte(out), &started); err != nil || started.RunID == "" {
					t.Fatalf("%s\nanswered %s", c, out)
				}
				run = started.RunID
			case !strings.Contains(out, run) && !strings.Contains(out, "confirmed"):
				t.Errorf("%s\nanswered %s", c, out)
			}
		case strings.HasPrefix(c, "bin/"):
			shell(t, folder, c)
		case strings.HasPrefix(c, "RUN="), strings.HasPrefix(c, "make run"):
		default:
			t.Errorf("this test does not know the command %q", c)
		}
	}
	if curls < 5 {
		t.Errorf("%d commands of curl in the section", curls)
	}
}

// stop ends a stack of a test's own; the context of the test may be over by then.
func stop(t *testing.T, s *stack.Stack) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// What `make run` runs after the build.
func TestTheCommandsThatRunPrintsWork(t *testing.T) {
	t.Parallel()
	folder := shortFolder(t)
	data := filepath.Join(folder, "data")
	ctx, cancel := context.WithTimeout(t.Context(), demoTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, stack.Need(t), append([]string{"run", "--listen", "127.0.0.1:0", "--data", data}, stack.Weak()...)...)
	endsWithTest(cmd)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const promised = 3
	events, printed := readRun(bufio.NewScanner(stdout), promised)
	if len(events) == 0 || !strings.Contains(events[len(events)-1], "run.finished") || len(printed) != promised {
		t.Errorf("it printed %d events and the commands %q; it said:\n%s", len(events), printed, stderr.String())
	}
	for i, c := range printed {
		out := shell(t, folder, c)
		if want := []string{"run_id", "run.finished", "RUN_FINISHED"}[i]; !strings.Contains(out, want) {
			t.Errorf("%s\nanswered %s", c, out)
		}
	}
	all, err := procs.Of(cmd.Process.Pid, data)
	if err := errors.Join(err, cmd.Process.Signal(os.Interrupt)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v; it said:\n%s", err, stderr.String())
	}
	for _, p := range all {
		if p.Alive() {
			t.Errorf("left behind: %s", p)
		}
	}
}

// readRun reads events and then so many commands. The pipe stays open.
func readRun(lines *bufio.Scanner, many int) (events, printed []string) {
	block := "```sh\n"
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, "{") {
			events = append(events, line)
		} else {
			block += line + "\n"
		}
		if printed = commands(block); len(printed) == many {
			return events, printed
		}
	}
	return events, printed
}

// endsWithTest lets a command get SIGTERM when its context ends, and SIGKILL with
// the thread of the test that starts it.
func endsWithTest(cmd *exec.Cmd) {
	runtime.LockOSThread() // until the test's goroutine ends
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
}
