package loopback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// offer makes the MCP server of the tools.
func (s *Server) offer(tools []harness.Tool) (server *mcp.Server, err error) {
	const op = "loopback.offer"
	server = mcp.NewServer(&mcp.Implementation{Name: Name, Version: "1"}, &mcp.ServerOptions{
		Logger:       slog.New(slog.DiscardHandler), // it quotes what a program sent
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		PageSize:     len(tools) + 1,
	})
	defer func() {
		// The SDK panics for a schema that it would not offer.
		if v := recover(); v != nil {
			err = fault.Wrap(fmt.Errorf("%v", v), fault.HarnessOptionsInvalid, op, fault.Detail("tools[].input_schema: not one that MCP can offer"))
		}
	}()
	for _, t := range tools {
		if _, twice := s.tools[t.OfferedName]; twice {
			return nil, fault.New(fault.HarnessOptionsInvalid, op, fault.Detail("tools[].offered_name: two tools have the same"))
		}
		schema, err := schemaOf(t)
		if err != nil {
			return nil, err
		}
		s.tools[t.OfferedName] = t
		server.AddTool(&mcp.Tool{
			Name: t.OfferedName, Description: t.Description, InputSchema: schema,
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.ReadOnly},
		}, s.callTool)
	}
	return server, nil
}

// schemaOf is a tool's schema with the type that MCP wants to be said. Its
// members travel as they came: numbers keep their digits.
func schemaOf(t harness.Tool) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(t.InputSchema, &members); err != nil || members == nil {
		return nil, fault.Wrap(err, fault.HarnessOptionsInvalid, "loopback.offer", fault.Detail("tools[].input_schema: one JSON object"))
	}
	if _, said := members["type"]; !said {
		members["type"] = json.RawMessage(`"object"`)
	}
	return members, nil
}

// serveMCP lets the SDK serve a request.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request, _ string, _ *Run) {
	s.mcp.ServeHTTP(w, r)
}

// callTool is one call over MCP. Whatever the tool says, also that it failed, is
// for the model.
func (s *Server) callTool(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	run, ok := s.enter()
	if !ok {
		return nil, errors.New("there is no run")
	}
	defer run.leave()
	tool, ok := s.tools[req.Params.Name]
	if !ok {
		return nil, errors.New("there is no tool of this name")
	}
	res, err := run.call(Call{Tool: tool, Arguments: req.Params.Arguments, Meta: req.Params.Meta})
	if err != nil {
		return failure(err), nil
	}
	return resultOf(res), nil
}

// failure is what a model reads of a call that gave no result.
func failure(err error) *mcp.CallToolResult {
	f := fault.From(err, "loopback.callTool")
	text := "Error " + string(f.Code()) + ": " + f.Code().Message()
	if f.Detail() != "" {
		text += " (" + event.SanitizeText(f.Detail()) + ")"
	}
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// resultOf is a broker's result, which has MCP's own form or is any other JSON.
func resultOf(r harness.ToolResult) *mcp.CallToolResult {
	var res mcp.CallToolResult
	if json.Unmarshal(r.Result, &res) != nil || len(res.Content) == 0 && res.StructuredContent == nil {
		res = mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: event.SanitizeText(string(r.Result))}}}
	}
	res.IsError = r.IsError
	return &res
}

// Validate says which of the tools MCP cannot offer. Errors:
// harness_options_invalid.
func Validate(tools []harness.Tool) error {
	s := &Server{tools: map[string]harness.Tool{}}
	_, err := s.offer(tools)
	return err
}
