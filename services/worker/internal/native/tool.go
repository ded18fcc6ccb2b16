package native

import (
	"context"
	"encoding/json"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/native/model"
)

const (
	// namespace of the ids of tools that the harness has itself. No server of the
	// broker may have it.
	namespace = "cofferdam."
	// subagentPrefix of the name under which a subagent is offered.
	subagentPrefix = "subagent_"
)

type toolKind int

const (
	toolBrokered toolKind = iota
	toolBuiltin
	toolForm
	toolSubagent
)

// tool is what a model may call.
type tool struct {
	model.Offer

	// id in events.
	id   string
	kind toolKind
	// approval is asked before each call.
	approval bool
	// when says in which runs a built-in tool is offered; nil is in all.
	when func(*run) bool
	// act carries a call of a built-in tool out.
	act func(context.Context, *run, toolCall) (produced, error)
	sub *agent
}

// produced is what a call gave.
type produced struct {
	// text for the model.
	text string
	// failed says that the tool itself said that it failed.
	failed bool
	// value for the event, and where the whole of it is.
	value event.Value
	ref   string
}

// said is a result that is a text.
func said(text string) produced {
	value, _ := event.ProjectText(text, event.MaxResultBytes)
	return produced{text: text, value: value}
}

// object is a result that is an object: what the model reads is its JSON.
func object(v any) (produced, error) {
	raw, err := marshal(v)
	if err != nil {
		return produced{}, err
	}
	value, _ := event.ProjectJSON(raw, event.MaxResultBytes)
	return produced{text: string(raw), value: value}, nil
}

// answered is what a broker's tool gave.
func answered(r harness.ToolResult) produced {
	value, _ := event.ProjectJSON(r.Result, event.MaxResultBytes)
	return produced{text: textOf(r), failed: r.IsError, value: value, ref: r.Ref}
}

// textOf is what a model reads of a result: the text of an MCP result's
// contents, or the JSON as it is.
func textOf(r harness.ToolResult) string {
	var mcp struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	}
	var text strings.Builder
	if err := json.Unmarshal(r.Result, &mcp); err == nil {
		for _, c := range mcp.Content {
			if c.Type == "text" {
				text.WriteString(c.Text)
			}
		}
	}
	if text.Len() == 0 {
		text.Write(r.Result)
	}
	if r.IsError {
		return event.SanitizeText("Error: " + text.String())
	}
	return event.SanitizeText(text.String())
}

func schema(text string) json.RawMessage { return json.RawMessage(text) }
