package mcpfiles

import (
	"context"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Name and version that the server gives of itself.
const (
	serverName    = "cofferdam-mcp-files"
	serverVersion = "1.0.0"
)

// The names of the tools.
const (
	ToolList = "list_directory"
	ToolRead = "read_text_file"
)

type pathArguments struct {
	Path string `json:"path" jsonschema:"path relative to the served folder, such as notes/today.txt; . is the folder itself"`
}

// New makes the server of the folder that root holds. The caller closes root
// after the last session.
func New(root *os.Root) *mcp.Server {
	f := folder{root}
	s := mcp.NewServer(&mcp.Implementation{Name: serverName, Version: serverVersion},
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
	mcp.AddTool(s, tool(ToolList, "List the files and folders of a folder. Each line begins with [FILE] or [DIR]."), textual(f.list))
	mcp.AddTool(s, tool(ToolRead, "Read a whole text file (UTF-8, at most 1 MiB)."), textual(f.read))
	return s
}

// Serve serves the folder over a transport until the client closes it or ctx
// ends. Both are an orderly end.
func Serve(ctx context.Context, root *os.Root, transport mcp.Transport) error {
	err := New(root).Run(ctx, transport)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // being told to stop is no failure
	}
	return err
}

func tool(name, description string) *mcp.Tool {
	closed := false
	return &mcp.Tool{
		Name: name, Description: description,
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &closed},
	}
}

// textual makes a tool of a function. Its error is a result that says isError:
// the model is to see it and try something else.
func textual(do func(context.Context, string) (string, error)) mcp.ToolHandlerFor[pathArguments, any] {
	return func(ctx context.Context, _ *mcp.CallToolRequest, args pathArguments) (*mcp.CallToolResult, any, error) {
		text, err := do(ctx, args.Path)
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	}
}
