package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// asProgram makes this test binary the program itself.
const asProgram = "MCP_FILES_TEST_MAIN=1"

func TestMain(m *testing.M) {
	if os.Getenv("MCP_FILES_TEST_MAIN") != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = []string{asProgram}
	return cmd
}

func TestServesAFolderAndEndsWithItsInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, "--root", dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: io.NopCloser(stdout), Writer: stdin}, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "read_text_file", Arguments: map[string]any{"path": "a.txt"}})
	if err != nil || res.IsError {
		t.Errorf("%v %v", res, err)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after the end of its input: %v", err)
	}
	_ = session.Close() // the other end has gone
}

// Over HTTP there is no session: each request stands alone, so that a client that reaches another replica, or the next
// process, notices nothing.
func TestServesAFolderOverHTTPUntilItIsStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, "--root", dir, "--http-listen", "127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ready struct {
		URL string `json:"url"`
	}
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: ready.URL, HTTPClient: &http.Client{Transport: transport}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "read_text_file", Arguments: map[string]any{"path": "a.txt"}})
	if err != nil || res.IsError {
		t.Errorf("%v %v", res, err)
	}
	res, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "read_text_file", Arguments: map[string]any{"path": "../../etc/passwd"}})
	if err != nil || !res.IsError {
		t.Errorf("out of the folder: %v %v", res, err)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

func TestRefusesABadCommandLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"no root":      nil,
		"argument":     {"--root", ".", "more"},
		"unknown flag": {"--write"},
		"no folder":    {"--root", filepath.Join(t.TempDir(), "none")},
		"file":         {"--root", file},
		"no address":   {"--root", t.TempDir(), "--http-listen", "8080"},
	} {
		if err := program(t, args...).Run(); err == nil {
			t.Errorf("%s: it started", name)
		}
	}
}
