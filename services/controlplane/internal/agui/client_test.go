package agui_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"cofferdam.dev/pkg/event/eventtest"
	"cofferdam.dev/services/controlplane/internal/agui"
)

// client is the real AG-UI client, @ag-ui/client from npm, which reads one stream
// after the other.
type client struct {
	url     string
	in      io.Writer
	out     *bufio.Reader
	streams chan [][]byte
}

// realClient starts it: the driver of the module tests.
func realClient(t *testing.T) *client {
	t.Helper()
	folder := filepath.Join("..", "..", "..", "..", "tests", "agui")
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(folder, "node_modules", "@ag-ui", "client", "package.json"))
	}
	if err != nil {
		missing := "THE REAL AG-UI CLIENT WAS NOT RUN: it needs Node 20 and `make node-modules` (" + err.Error() + ")"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	c := &client{streams: make(chan [][]byte, 1)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i, f := range <-c.streams {
			_, _ = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", i, f)
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), node, "driver.mjs") // it ends with its input
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // which ends it
		if err := cmd.Wait(); err != nil {
			t.Errorf("the client's process: %v", err)
		}
	})
	c.in, c.out = in, bufio.NewReader(out)
	return c
}

// reads gives the types of the events that the client passed on, and why it gave up,
// or what it complained of.
func (c *client) reads(frames [][]byte) (types []string, complaint string, err error) {
	c.streams <- frames
	ask, err := json.Marshal([]any{map[string]any{
		"url": c.url, "thread_id": "thread", "turns": []any{map[string]any{"run_id": "run", "message": "hi"}},
	}})
	if err != nil {
		return nil, "", err
	}
	if _, err := c.in.Write(append(ask, '\n')); err != nil {
		return nil, "", err
	}
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return nil, "", err
	}
	var seen [][]struct {
		Events   []struct{ Type string }
		Error    string
		Warnings []string
	}
	if err := json.Unmarshal(line, &seen); err != nil || len(seen) != 1 || len(seen[0]) != 1 {
		return nil, "", fmt.Errorf("the driver answered %q (%w)", line, err)
	}
	turn := seen[0][0]
	for _, e := range turn.Events {
		types = append(types, e.Type)
	}
	return types, strings.Join(append(turn.Warnings, turn.Error), ""), nil
}

// Whatever sequence of events the machine accepts becomes a stream that the real
// client accepts: it passes on every frame, complains of none, and sees the terminal.
func TestTheRealClientReadsEveryRun(t *testing.T) {
	t.Parallel()
	c := realClient(t)
	rapid.Check(t, func(t *rapid.T) {
		var g eventtest.Golden
		if rapid.Bool().Draw(t, "resumed") {
			g = eventtest.Resumed().Draw(t, "run")
		} else {
			g.Events = eventtest.Run().Draw(t, "run")
		}
		frames := encode(t, agui.NewEncoder("thread", "run", agui.Resumes(g.AskedBy, g.Carried)), g.Events...)
		types, complaint, err := c.reads(frames)
		if err != nil {
			t.Fatal(err)
		}
		if complaint != "" {
			t.Fatalf("the client gave up or complained: %q", complaint)
		}
		if len(types) != len(frames) || !strings.HasPrefix(types[len(types)-1], "RUN_") || types[0] != "RUN_STARTED" {
			t.Fatalf("of %d frames the client passed on %d: %v", len(frames), len(types), types)
		}
	})
}

// The client is a judge: it refuses what is not lawful.
func TestTheRealClientRefuses(t *testing.T) {
	t.Parallel()
	c := realClient(t)
	frames := encodeGolden(t, eventtest.Goldens()["tool"])
	bad := without(frames, `"type":"TEXT_MESSAGE_START"`)
	if _, complaint, err := c.reads(bad); err != nil || complaint == "" {
		t.Errorf("it read text that nothing opened (%v)", err)
	}
	if types, complaint, err := c.reads(frames); err != nil || complaint != "" || len(types) != len(frames) {
		t.Errorf("then it read %d of %d frames: %q (%v)", len(types), len(frames), complaint, err)
	}
}
