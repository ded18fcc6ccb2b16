package native

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// maxWholeArguments is up to what size arguments stand in tool.started: an event
// has to have room for more than them. Larger ones follow as deltas.
const maxWholeArguments = event.MaxEventBytes - 16<<10

// callTools makes the calls of one answer, some at once, and gives the tools'
// messages in the order of the calls. What a tool says, also that it failed, is
// for the model; only what ends the run is an error.
func (t *turn) callTools(ctx context.Context, a answer) ([]message, error) {
	out := make([]message, len(a.calls))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(t.options.ParallelToolCalls)
	for i, c := range a.calls {
		g.Go(func() (err error) {
			defer func() { // the worker recovers only in the goroutine that it gave
				if v := recover(); v != nil {
					err = fault.Wrap(fmt.Errorf("panic of type %T\n%s", v, debug.Stack()), fault.Internal, "native.callTools")
				}
			}()
			text, err := t.callTool(gctx, c, a.messageID)
			out[i] = message{Role: roleTool, CallID: c.ID, Text: text}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return nil, fault.From(ctx.Err(), "native.callTools")
		}
		return nil, err
	}
	return out, nil
}

// callTool makes one call and tells of it in events, which come from the
// broker's answers and from nothing else.
func (t *turn) callTool(ctx context.Context, c toolCall, parent string) (string, error) {
	const op = "native.callTool"
	tool, offered := t.byName[c.Name]
	if !offered || c.madeUp {
		return "There is no tool of this name. Call one that was offered.", t.warn(ctx, "unknown_tool", "The model called a tool that was not offered.")
	}
	if err := t.startTool(ctx, c, tool.ID, parent); err != nil {
		return "", err
	}
	switch {
	case c.number > t.construction.Limits.ToolCalls:
		return t.toolError(ctx, c, fault.New(fault.Capacity, op, fault.Detail("the run has used up its tool calls: answer without further ones")))
	case c.refused:
		return t.toolError(ctx, c, fault.New(fault.ToolArgumentsInvalid, op, fault.Detail("arguments: one JSON object without doubled keys")))
	}
	res, err := t.Tools.Call(ctx, harness.ToolCall{CallID: c.ID, ToolID: tool.ID, Arguments: c.Arguments})
	if err != nil {
		return t.toolError(ctx, c, err)
	}
	value, _ := event.ProjectJSON(res.Result, event.MaxResultBytes)
	if err := t.emit.Emit(ctx, event.Draft{Data: event.ToolFinished{ToolCallID: c.ID, Result: value}}); err != nil {
		return "", err
	}
	return textOf(res), nil
}

func (t *turn) startTool(ctx context.Context, c toolCall, toolID, parent string) error {
	started := event.ToolStarted{ToolCallID: c.ID, ToolName: toolID, Arguments: event.Object(c.Arguments), ParentMessageID: parent}
	whole := len(c.Arguments) <= maxWholeArguments
	if !whole {
		started.Arguments = event.EmptyObject
	}
	if err := t.emit.Emit(ctx, event.Draft{Data: started}); err != nil || whole {
		return err
	}
	return eachPiece(string(c.Arguments), func(p string) error {
		return t.emit.Emit(ctx, event.Draft{Data: event.ToolArgumentsDelta{ToolCallID: c.ID, Delta: p}})
	})
}

// toolError ends the call as an error. What says that this run may do nothing
// more ends the run; anything else the model may know, in the words of the code.
func (t *turn) toolError(ctx context.Context, c toolCall, err error) (string, error) {
	const op = "native.callTool"
	if ctx.Err() != nil {
		return "", fault.From(ctx.Err(), op)
	}
	f := fault.From(err, op)
	switch f.Code() { //nolint:exhaustive // the others are for the model
	case fault.StaleLease, fault.Cancelled, fault.CapabilityExpired:
		return "", f
	}
	e := event.ToolError{ToolCallID: c.ID, Code: string(f.Code()), Message: f.Code().Message(), Retryable: f.Code().Retryable()}
	if err := t.emit.Emit(ctx, event.Draft{Data: e}); err != nil {
		return "", err
	}
	text := "Error " + e.Code + ": " + e.Message
	if f.Detail() != "" {
		text += " (" + event.SanitizeText(f.Detail()) + ")"
	}
	return text, nil
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
