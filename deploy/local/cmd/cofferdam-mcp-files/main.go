// Command cofferdam-mcp-files is an MCP server over stdio that lists and reads
// the files of one folder, and nothing else. It ends when its standard input
// does.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/deploy/local/internal/mcpfiles"
)

func main() {
	dir := flag.String("root", "", "`FOLDER` to serve (required)")
	flag.Parse()
	if *dir == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := serve(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "cofferdam-mcp-files:", err)
		os.Exit(1)
	}
}

func serve(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing was written
	return mcpfiles.Serve(ctx, root, &mcp.StdioTransport{})
}
