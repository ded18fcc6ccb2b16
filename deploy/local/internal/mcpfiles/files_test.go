package mcpfiles_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/deploy/local/internal/mcpfiles"
)

func TestListsAndReads(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if err := os.MkdirAll(filepath.Join(s.dir, "notes", "old"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.dir, "notes", "today.txt"), "buy é\n")
	write(t, filepath.Join(s.dir, "b.txt"), "")
	if err := os.Symlink("notes/today.txt", filepath.Join(s.dir, "z-link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tool, path, want string }{
		{mcpfiles.ToolList, ".", "[FILE] b.txt\n[DIR] notes\n[FILE] z-link"},
		{mcpfiles.ToolList, "", "[FILE] b.txt\n[DIR] notes\n[FILE] z-link"},
		{mcpfiles.ToolList, "notes/", "[DIR] old\n[FILE] today.txt"},
		{mcpfiles.ToolList, "notes/old", ""},
		{mcpfiles.ToolRead, "notes/today.txt", "buy é\n"},
		{mcpfiles.ToolRead, "./notes/old/../today.txt", "buy é\n"},
		{mcpfiles.ToolRead, "z-link", "buy é\n"},
		{mcpfiles.ToolRead, "b.txt", ""},
	} {
		if text, isError := s.call(t, c.tool, c.path); isError || text != c.want {
			t.Errorf("%s %q: %q (error %v), want %q", c.tool, c.path, text, isError, c.want)
		}
	}
}

func TestErrorsAreResultsThatSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := serve(t)
	write(t, filepath.Join(s.dir, "exact.txt"), strings.Repeat("a", 1<<20))
	write(t, filepath.Join(s.dir, "large.txt"), strings.Repeat("a", 1<<20+1))
	write(t, filepath.Join(s.dir, "latin1.txt"), "caf\xe9")
	for _, c := range []struct{ tool, path, want string }{
		{mcpfiles.ToolRead, "none.txt", "no such file"},
		{mcpfiles.ToolList, "none", "no such file"},
		{mcpfiles.ToolList, "exact.txt", mcpfiles.ToolRead},
		{mcpfiles.ToolRead, ".", mcpfiles.ToolList},
		{mcpfiles.ToolRead, "large.txt", "1048576 bytes"},
		{mcpfiles.ToolRead, "latin1.txt", "not UTF-8"},
		{mcpfiles.ToolRead, "/exact.txt", "relative to the folder"},
	} {
		if text, isError := s.call(t, c.tool, c.path); !isError || !strings.Contains(text, c.want) {
			t.Errorf("%s %q: %q (error %v), want an error with %q", c.tool, c.path, text, isError, c.want)
		}
	}
	if text, isError := s.call(t, mcpfiles.ToolRead, "exact.txt"); isError || len(text) != 1<<20 {
		t.Errorf("a file at the bound: %d bytes (error %v)", len(text), isError)
	}
}

func TestNamesCannotForgeLines(t *testing.T) {
	t.Parallel()
	s := serve(t)
	write(t, filepath.Join(s.dir, "a\n[DIR] b"), "")
	write(t, filepath.Join(s.dir, "not-utf8-\xff"), "")
	text, isError := s.call(t, mcpfiles.ToolList, ".")
	if want := "[FILE] \"a\\n[DIR] b\"\n[FILE] \"not-utf8-\\xff\""; isError || text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

func TestAHugeFolderIsCut(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for i := range 2001 {
		write(t, filepath.Join(s.dir, fmt.Sprintf("%04d", i)), "")
	}
	text, isError := s.call(t, mcpfiles.ToolList, ".")
	if lines := strings.Split(text, "\n"); isError || len(lines) != 2001 || !strings.Contains(lines[2000], "only 2000") {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestUnknownToolsAndArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if _, err := s.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "write_file"}); err == nil {
		t.Error("an unknown tool was called")
	}
	for _, args := range []map[string]any{{}, {"path": 1}, {"path": ".", "more": true}} {
		res, err := s.session.CallTool(t.Context(), &mcp.CallToolParams{Name: mcpfiles.ToolRead, Arguments: args})
		if err == nil && !res.IsError {
			t.Errorf("%v was taken", args)
		}
	}
}
