package apiclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// InterruptState is what a conversation waits for. Interrupt is nil where it
// waits for nothing.
type InterruptState struct {
	RunID     string     `json:"run_id"`
	Revision  uint64     `json:"revision"`
	Interrupt *Interrupt `json:"interrupt"`
}

// Interrupt is what a person is asked.
type Interrupt struct {
	InterruptID   string         `json:"interrupt_id"`
	InterruptType string         `json:"interrupt_type"`
	AgentID       string         `json:"agent_id"`
	Prompt        string         `json:"prompt"`
	Fields        []any          `json:"fields"`
	ToolApprovals []ToolApproval `json:"tool_approvals"`
}

// ToolApproval is a tool call that waits for a decision.
type ToolApproval struct {
	ToolCallID       string          `json:"tool_call_id"`
	ToolName         string          `json:"tool_name"`
	ToolArgs         json.RawMessage `json:"tool_args"`
	AllowedDecisions []string        `json:"allowed_decisions"`
}

// Resume answers an interrupt: by a form, by dismissing it, or by a decision on
// each of its calls.
type Resume struct {
	InterruptID string          `json:"interrupt_id"`
	Revision    uint64          `json:"revision"`
	Form        json.RawMessage `json:"form,omitempty"`
	Dismiss     bool            `json:"dismiss,omitempty"`
	Tools       []ToolDecision  `json:"tool_decisions,omitempty"`
}

// ToolDecision on a call is approve, edit with other arguments, or reject.
type ToolDecision struct {
	ToolCallID string          `json:"tool_call_id"`
	Decision   string          `json:"decision"`
	Arguments  json.RawMessage `json:"arguments,omitempty"`
}

// InterruptState tells what a conversation with an agent waits for.
func (c *Client) InterruptState(ctx context.Context, conversationID, agentID string) (InterruptState, error) {
	var out InterruptState
	path := "/api/v1/conversations/" + url.PathEscape(conversationID) + "/interrupt-state?" + url.Values{"agent_id": {agentID}}.Encode()
	return out, c.call(ctx, http.MethodGet, path, nil, &out)
}

// Resume goes on with a run that was interrupted; the answer names the new one.
func (c *Client) Resume(ctx context.Context, runID string, r Resume) (Started, error) {
	var out Started
	return out, c.call(ctx, http.MethodPost, "/api/v1/runs/"+url.PathEscape(runID)+":resume", r, &out)
}
