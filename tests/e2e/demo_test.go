package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

const demoTimeout = 2 * time.Minute

// demoLine is one line of the demo's stdout.
type demoLine struct {
	Turn       int             `json:"turn"`
	BindingID  string          `json:"binding_id"`
	Epoch      *uint32         `json:"epoch"`
	Generation uint32          `json:"lease_generation"`
	Event      apiclient.Event `json:"event"`
}

// What `make demo` runs after the build.
func TestTheDemoShowsWhatItPromises(t *testing.T) {
	t.Parallel()
	data := filepath.Join(shortFolder(t), "data")
	ctx, cancel := context.WithTimeout(t.Context(), demoTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, stack.Need(t), append([]string{"demo", "--data", data}, stack.Weak()...)...)
	endsWithTest(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v; it said:\n%s", err, stderr.String())
	}
	if left, err := procs.Of(cmd.Process.Pid, data); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if stderr.Len() == 0 {
		t.Error("it said nothing for people")
	}
	turns := map[int][]demoLine{}
	d := json.NewDecoder(bytes.NewReader(stdout.Bytes()))
	d.DisallowUnknownFields()
	for {
		var l demoLine
		err := d.Decode(&l)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("stdout is not JSON lines of events: %v\n%s", err, stdout.String())
		}
		turns[l.Turn] = append(turns[l.Turn], l)
	}
	lines := len(turns[1]) + len(turns[2])
	if n := bytes.Count(stdout.Bytes(), []byte("\n")); n != lines || len(turns) != 2 {
		t.Errorf("%d lines, %d of them events of turns 1 and 2 (%d turns)", n, lines, len(turns))
	}
	first, second := demoTurn(t, turns[1]), demoTurn(t, turns[2])
	if len(first.of("tool.finished")) == 0 {
		t.Errorf("turn 1 finished no tool: %s", first)
	}
	a, b := turns[1][0], turns[2][0]
	if a.Generation != 1 || b.Generation != 2 || a.BindingID != b.BindingID || *a.Epoch != *b.Epoch {
		t.Errorf("turn 1 began as %+v, turn 2 as %+v", a, b)
	}
	notes, err := os.ReadFile(filepath.Join(data, "sample", "notes.txt"))
	if err != nil {
		t.Fatal(err)
	}
	word, _, _ := strings.Cut(string(notes), "\n")
	if !strings.Contains(first.text(t), word) || !strings.Contains(second.text(t), word) {
		t.Errorf("%q was said in turn 1: %q, in turn 2: %q", word, first.text(t), second.text(t))
	}
}

// demoTurn checks the lines of one turn and makes a turn of them.
func demoTurn(t *testing.T, lines []demoLine) turn {
	t.Helper()
	if len(lines) == 0 {
		t.Fatal("a turn without a line")
	}
	var r turn
	for _, l := range lines {
		if l.BindingID != lines[0].BindingID || l.Generation != lines[0].Generation || l.Epoch == nil {
			t.Errorf("a line of another lease: %+v", l)
		}
		r.events = append(r.events, l.Event)
	}
	r.RunID = r.events[0].RunID
	r.whole(t, &talk{conversation: r.events[0].ConversationID})
	r.finished(t)
	return r
}

// shortFolder is a temporary folder whose path has room for that of a socket.
func shortFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cofferdam-") //nolint:usetesting // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
