package apiclient

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Binding is what an operator sees of a conversation.
type Binding struct {
	BindingID       string `json:"binding_id"`
	Epoch           uint32 `json:"epoch"`
	Generation      uint32 `json:"lease_generation"`
	AgentID         string `json:"agent_id"`
	AgentVersion    uint32 `json:"agent_version"`
	HarnessID       string `json:"harness_id"`
	DurableRevision uint64 `json:"durable_revision"`
	Run             *struct {
		RunID    string    `json:"run_id"`
		Events   uint64    `json:"events"`
		Admitted int       `json:"admitted_effects"`
		Deadline time.Time `json:"deadline"`
	} `json:"run"`
	Ending int `json:"ending"`
	Lease  *struct {
		ClaimName   string `json:"claim_name"`
		ClaimUID    string `json:"claim_uid"`
		SandboxUID  string `json:"sandbox_uid"`
		InstanceUID string `json:"instance_uid"`
		State       string `json:"state"`
		Profile     string `json:"profile"`
		ImageDigest string `json:"worker_image_digest"`
	} `json:"lease"`
	Sandbox *struct {
		InstanceUID string `json:"instance_uid"`
		SPIFFEID    string `json:"spiffe_id"`
		PID         int    `json:"pid"`
	} `json:"sandbox"`
	Refusals []struct {
		At         time.Time `json:"at"`
		What       string    `json:"what"`
		Generation uint32    `json:"lease_generation"`
	} `json:"fence_refusals"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Bindings gives the page of bindings that follows the binding after; "" begins
// with the first.
func (c *Client) Bindings(ctx context.Context, after string) (page []Binding, next string, err error) {
	path := "/api/v1/bindings"
	if after != "" {
		path += "?after=" + url.QueryEscape(after)
	}
	var out struct {
		Bindings   []Binding `json:"bindings"`
		NextCursor string    `json:"next_cursor"`
	}
	err = c.call(ctx, http.MethodGet, path, nil, &out)
	return out.Bindings, out.NextCursor, err
}

// Binding gives one binding.
func (c *Client) Binding(ctx context.Context, id string) (Binding, error) {
	var out Binding
	return out, c.call(ctx, http.MethodGet, "/api/v1/bindings/"+url.PathEscape(id), nil, &out)
}
