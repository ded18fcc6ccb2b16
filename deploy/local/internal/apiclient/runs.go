package apiclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// StartRequest asks for a run.
type StartRequest struct {
	AgentID        string `json:"agent_id"`
	ConversationID string `json:"conversation_id"`
	Message        string `json:"message"`
	// IdempotencyKey makes a repeated request the same run; empty is a new one.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// Started is the run of a StartRequest.
type Started struct {
	RunID     string `json:"run_id"`
	BindingID string `json:"binding_id"`
	Epoch     uint32 `json:"epoch"`
}

// Run is what is known of a run.
type Run struct {
	RunID      string `json:"run_id"`
	BindingID  string `json:"binding_id"`
	Epoch      uint32 `json:"epoch"`
	Generation uint32 `json:"lease_generation"`
	// State is running, ending or ended.
	State           string          `json:"state"`
	End             string          `json:"end"`
	EndReason       string          `json:"end_reason"`
	Events          uint64          `json:"events"`
	DurableRevision uint64          `json:"durable_revision"`
	Terminal        json.RawMessage `json:"terminal"`
}

// Cancelled is what a cancel has confirmed.
type Cancelled struct {
	Cancelled   bool   `json:"cancelled"`
	Confirmed   bool   `json:"confirmed"`
	SideEffects string `json:"side_effect_status"`
}

// Start starts a run. It returns once the run is committed.
func (c *Client) Start(ctx context.Context, r StartRequest) (Started, error) {
	var out Started
	err := c.call(ctx, http.MethodPost, "/api/v1/runs", r, &out)
	return out, err
}

// Run gives the status of a run.
func (c *Client) Run(ctx context.Context, runID string) (Run, error) {
	var out Run
	err := c.call(ctx, http.MethodGet, "/api/v1/runs/"+url.PathEscape(runID), nil, &out)
	return out, err
}

// Cancel cancels a run and says what was confirmed.
func (c *Client) Cancel(ctx context.Context, runID string) (Cancelled, error) {
	var out Cancelled
	err := c.call(ctx, http.MethodPost, "/api/v1/runs/"+url.PathEscape(runID)+":cancel", struct{}{}, &out)
	return out, err
}

// Binding is what operators see of a conversation.
type Binding struct {
	BindingID       string    `json:"binding_id"`
	Epoch           uint32    `json:"epoch"`
	Generation      uint32    `json:"lease_generation"`
	AgentID         string    `json:"agent_id"`
	AgentVersion    uint32    `json:"agent_version"`
	HarnessID       string    `json:"harness_id"`
	DurableRevision uint64    `json:"durable_revision"`
	Ending          int       `json:"ending"`
	UpdatedAt       time.Time `json:"updated_at"`
	// Run is the active one, or nil.
	Run *struct {
		RunID  string `json:"run_id"`
		Events uint64 `json:"events"`
	} `json:"run"`
	// Lease is the present one, or nil.
	Lease *struct {
		ClaimName string `json:"claim_name"`
		State     string `json:"state"`
	} `json:"lease"`
	// Sandbox is what the lease has, or nil.
	Sandbox *struct {
		InstanceUID string `json:"instance_uid"`
		PID         int    `json:"pid"`
	} `json:"sandbox"`
	Refusals []json.RawMessage `json:"fence_refusals"`
}

// Binding gives one binding, from the operators' API.
func (c *Client) Binding(ctx context.Context, id string) (Binding, error) {
	var out Binding
	err := c.call(ctx, http.MethodGet, "/api/v1/bindings/"+url.PathEscape(id), nil, &out)
	return out, err
}

// Bindings gives a page of bindings that come after the one named, and the last of
// the page, from the operators' API. "" begins, and ends, the pages.
func (c *Client) Bindings(ctx context.Context, after string) (page []Binding, next string, err error) {
	path := "/api/v1/bindings"
	if after != "" {
		path += "?after=" + url.QueryEscape(after)
	}
	var out struct {
		Bindings []Binding `json:"bindings"`
		Next     string    `json:"next_cursor"`
	}
	if err := c.call(ctx, http.MethodGet, path, nil, &out); err != nil {
		return nil, "", err
	}
	return out.Bindings, out.Next, nil
}
