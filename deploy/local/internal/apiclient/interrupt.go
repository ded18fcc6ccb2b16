package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"cofferdam.dev/pkg/event"
)

// Pending is a question that a conversation waits for.
type Pending struct {
	// RunID is the run that asked.
	RunID     string                    `json:"run_id"`
	Revision  uint64                    `json:"revision"`
	Interrupt *event.InterruptRequested `json:"interrupt"`
}

// PendingInterrupt gives the question that a conversation with an agent waits for, or nil.
func (c *Client) PendingInterrupt(ctx context.Context, agent, conversation string) (*Pending, error) {
	var out Pending
	path := "/api/v1/conversations/" + url.PathEscape(conversation) + "/interrupt-state?agent_id=" + url.QueryEscape(agent)
	if err := c.call(ctx, http.MethodGet, path, nil, &out); err != nil || out.Interrupt == nil {
		return nil, err
	}
	return &out, nil
}

// Resume answers a question. It returns once the run that goes on is committed; the
// same answer again gives the same run.
func (c *Client) Resume(ctx context.Context, p Pending, d event.ResumeDecision) (Started, error) {
	body := struct {
		InterruptID string `json:"interrupt_id"`
		Revision    uint64 `json:"revision"`
		event.ResumeDecision
	}{p.Interrupt.InterruptID, p.Revision, d}
	var out Started
	err := c.call(ctx, http.MethodPost, "/api/v1/runs/"+url.PathEscape(p.RunID)+":resume", body, &out)
	return out, err
}
