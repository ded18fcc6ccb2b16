// Command cofferdam-mcp-files is an MCP server that lists and reads the files of
// one folder, and nothing else. It speaks over stdio, and ends when its standard
// input does; or, with --http-listen, over streamable HTTP at /mcp, to whoever
// reaches the address, until SIGTERM.
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
	listen := flag.String("http-listen", "", "`HOST:PORT` to serve streamable HTTP on, without TLS and without asking who calls; a network policy has to say who may connect (default: stdio)")
	flag.Parse()
	if *dir == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := serve(*dir, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "cofferdam-mcp-files:", err)
		os.Exit(1)
	}
}

func serve(dir, listen string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing was written
	if listen != "" {
		return mcpfiles.ServeHTTP(ctx, root, listen, os.Stdout)
	}
	return mcpfiles.Serve(ctx, root, &mcp.StdioTransport{})
}
