package mcpcall

import (
	"bytes"
	"encoding/json"

	"cofferdam.dev/pkg/strictjson"
)

// Bounds of what a server says of one tool.
const (
	maxTool      = 256 << 10 // bytes
	maxToolDepth = 128
)

// headerKey marks a property of a schema whose value has to be sent as a header,
// too (revision 2026-07-28, HTTP).
const headerKey = `"x-mcp-header"`

// plain is a result that the SDK can decode whatever the server sent. Of tools it
// has those alone whose arguments the SDK has to put into headers, and no time to
// live: what may be cached is decided elsewhere.
func (x *Exchange) plain(result json.RawMessage) json.RawMessage {
	if x.Method != methodList {
		return json.RawMessage(`{"content":[]}`)
	}
	tools := []json.RawMessage{}
	if x.headers {
		var page struct {
			Tools []json.RawMessage `json:"tools"`
		}
		_ = json.Unmarshal(result, &page) // no tools, then
		for _, raw := range page.Tools {
			if reduced, ok := reduce(raw); ok {
				tools = append(tools, reduced)
			}
		}
	}
	out, err := json.Marshal(map[string]any{"tools": tools})
	if err != nil {
		return json.RawMessage(`{"tools":[]}`)
	}
	return out
}

// reduce gives name and schema of a tool that wants arguments in headers.
func reduce(raw json.RawMessage) (json.RawMessage, bool) {
	if !wantsHeaders(raw) {
		return nil, false
	}
	var fields map[string]json.RawMessage
	o := strictjson.Options{MaxBytes: maxTool, MaxDepth: maxToolDepth, AllowCaseVariants: true, AllowControls: true}
	if strictjson.Unmarshal(raw, &fields, o) != nil {
		return nil, false
	}
	name, schema := fields["name"], fields["inputSchema"]
	if len(name) == 0 || name[0] != '"' || len(schema) == 0 || schema[0] != '{' {
		return nil, false
	}
	out, err := json.Marshal(map[string]json.RawMessage{"name": name, "inputSchema": schema})
	return out, err == nil
}

func wantsHeaders(tool json.RawMessage) bool { return bytes.Contains(tool, []byte(headerKey)) }

// nameOf is the name of a tool, or "".
func nameOf(raw json.RawMessage) string {
	var fields map[string]json.RawMessage
	var name string
	if json.Unmarshal(raw, &fields) != nil || json.Unmarshal(fields["name"], &name) != nil {
		return ""
	}
	return name
}
