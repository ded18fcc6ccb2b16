package mcpfiles_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/deploy/local/internal/mcpfiles"
)

// served is a folder with a sibling that must stay out of reach, and a client.
type served struct {
	dir     string // what is served
	outside string // the sibling, whose name begins like the folder's
	session *mcp.ClientSession
}

const secret = "out of reach"

func serve(t *testing.T) served {
	t.Helper()
	parent := t.TempDir()
	s := served{dir: filepath.Join(parent, "dir"), outside: filepath.Join(parent, "dir-evil")}
	for _, d := range []string{s.dir, s.outside} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(s.outside, "secret.txt"), secret)
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	here, there := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mcpfiles.Serve(ctx, root, there) }()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s.session, err = client.Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.session.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// call gives the one text of a result.
func (s served) call(t *testing.T, tool, path string) (text string, isError bool) {
	t.Helper()
	res, err := s.session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"path": path}})
	if err != nil {
		t.Fatalf("%s %q: %v", tool, path, err)
	}
	if len(res.Content) != 1 {
		t.Fatalf("%s %q: %d contents", tool, path, len(res.Content))
	}
	c, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("%s %q: %T", tool, path, res.Content[0])
	}
	return c.Text, res.IsError
}
