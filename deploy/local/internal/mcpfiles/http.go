package mcpfiles

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/pkg/service"
)

const (
	// HTTPPath is the MCP endpoint.
	HTTPPath = "/mcp"

	maxBody = 64 << 10 // of a request, which holds one path
	drain   = 5 * time.Second
)

// Handler serves the folder over streamable HTTP at HTTPPath, and /healthz. It
// keeps nothing between two requests, and asks nobody who they are.
func Handler(root *os.Root) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(HTTPPath, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return New(root) },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxBody}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	return mux
}

// ServeHTTP serves Handler at host:port until ctx ends, and then lets open
// requests end. Once it answers it writes one line of JSON, {"ready":true,"url":…}.
func ServeHTTP(ctx context.Context, root *os.Root, address string, out io.Writer) error {
	l, err := service.Listen(ctx, address)
	if err != nil {
		return err
	}
	ready := map[string]any{"ready": true, "url": "http://" + l.Addr().String() + HTTPPath}
	if err := json.NewEncoder(out).Encode(ready); err != nil {
		_ = l.Close() // nobody has connected
		return err
	}
	return service.ServeListener(ctx, service.HTTPServer(Handler(root), slog.New(slog.DiscardHandler)), l, drain)
}
