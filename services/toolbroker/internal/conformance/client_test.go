package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"cofferdam.dev/services/toolbroker/internal/egress"
	"cofferdam.dev/services/toolbroker/internal/elicit"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
	"cofferdam.dev/services/toolbroker/internal/mcphttp"
)

// asClient is the first argument that makes this test binary the client under
// test; the URL of the suite's server is the second.
const asClient = "mcp-client"

// bound of one scenario.
const bound = 40 * time.Second

// runClient does what a scenario asks of a client, with the broker's own client
// and nothing else.
func runClient(u string) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	s, err := connect(ctx, u)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // it returns nil
	list, err := s.Tools(ctx)
	if err != nil {
		return err
	}
	tools := map[string]tool{}
	for _, raw := range list.Tools {
		var t tool
		if json.Unmarshal(raw, &t) == nil {
			tools[t.Name] = t
		}
	}
	return play(ctx, s, os.Getenv("MCP_CONFORMANCE_SCENARIO"), tools)
}

type tool struct {
	Name        string          `json:"name"`
	InputSchema json.RawMessage `json:"inputSchema"`
}

func connect(ctx context.Context, u string) (*mcphttp.Server, error) {
	allow, err := egress.ParsePrefixes([]string{"127.0.0.1/32", "::1/128"})
	if err != nil {
		return nil, err
	}
	target, err := egress.ParseURL(u)
	if err != nil {
		return nil, err
	}
	var port uint16
	if _, err := fmt.Sscan(egress.Port(target), &port); err != nil {
		return nil, err
	}
	return mcphttp.Connect(ctx, mcphttp.Config{
		URL: u, ConnectTimeout: bound,
		Transport: egress.New(egress.Policy{Allow: allow, Ports: []uint16{port}, Hosts: []string{egress.Host(target)}}, nil),
		Authorize: func(context.Context, http.Header) error { return nil },
	})
}

// fill answers a question as a person would who says yes to everything and leaves
// out what may be left out.
func fill(q *mcpcall.Input) error {
	asked, err := elicit.Parse(q.Params, func(s string) string { return s })
	if err != nil {
		return err
	}
	form := map[string]any{}
	for _, f := range asked.Fields {
		if f.FieldType == "boolean" && f.DefaultValue == "" {
			form[f.FieldName] = true
		}
	}
	text, err := json.Marshal(form)
	if err != nil {
		return err
	}
	q.Action, q.Content, err = asked.Answer(text)
	return err
}

// play makes the calls of a scenario. Whether a call may fail is the suite's to
// say: it looks at what was sent.
func play(ctx context.Context, s *mcphttp.Server, scenario string, tools map[string]tool) error {
	call := func(name string, args any) error {
		text, err := json.Marshal(args)
		if err != nil {
			return err
		}
		a, err := s.Call(ctx, name, text, time.Time{})
		if q, asked := a.Question(s.Version()); asked && err == nil {
			if err := fill(&q); err != nil {
				return err
			}
			_, err = s.Call(ctx, name, text, time.Time{}, mcpcall.WithInput(q))
		}
		if errors.Is(err, mcpcall.ErrNoAnswer) {
			err = nil // the suite breaks streams off, too
		}
		return err
	}
	switch scenario {
	case "tools_call":
		return call("add_numbers", map[string]any{"a": 5, "b": 3})
	case "json-schema-2020-12-preservation":
		return call("json_schema_echo", map[string]any{"schema": tools["json_schema_2020_12_tool"].InputSchema})
	case "http-custom-headers":
		var given struct {
			ToolCalls []struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"toolCalls"`
		}
		if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &given); err != nil {
			return err
		}
		for _, c := range given.ToolCalls {
			if err := call(c.Name, c.Arguments); err != nil {
				return err
			}
		}
		return nil
	default:
		for name := range tools {
			if err := call(name, map[string]any{"region": "us-west1"}); err != nil {
				return err
			}
		}
		return nil
	}
}
