package apiclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Start asks for a run.
type Start struct {
	AgentID        string          `json:"agent_id"`
	ConversationID string          `json:"conversation_id"`
	Message        string          `json:"message"`
	Files          []File          `json:"files,omitempty"`
	ClientContext  json.RawMessage `json:"client_context,omitempty"`
	IdempotencyKey string          `json:"idempotency_key,omitempty"`
	OnDisconnect   string          `json:"on_disconnect,omitempty"`
}

// File is sent along with a message.
type File struct {
	Name     string `json:"name,omitempty"`
	MIMEType string `json:"mime_type,omitempty"`
	// Data is base64 in JSON.
	Data []byte `json:"data,omitempty"`
	// FileID names one that was stored before; the rest is empty then.
	FileID string `json:"file_id,omitempty"`
}

// Started is a run that is committed.
type Started struct {
	RunID     string `json:"run_id"`
	BindingID string `json:"binding_id"`
	Epoch     uint32 `json:"epoch"`
}

// Run is the status of a run.
type Run struct {
	RunID           string    `json:"run_id"`
	BindingID       string    `json:"binding_id"`
	Epoch           uint32    `json:"epoch"`
	Generation      uint32    `json:"lease_generation"`
	AgentID         string    `json:"agent_id"`
	ConversationID  string    `json:"conversation_id"`
	State           string    `json:"state"`
	End             string    `json:"end"`
	EndReason       string    `json:"end_reason"`
	Events          uint64    `json:"events"`
	DurableRevision uint64    `json:"durable_revision"`
	SideEffects     string    `json:"side_effect_status"`
	StartedAt       time.Time `json:"started_at"`
	Deadline        time.Time `json:"deadline"`
	EndedAt         time.Time `json:"ended_at"`
	Terminal        *Event    `json:"terminal"`
}

// Event is one canonical event. Raw is its text as it came.
type Event struct {
	Type           string `json:"type"`
	RunID          string `json:"run_id"`
	ConversationID string `json:"conversation_id"`
	Sequence       uint64 `json:"sequence"`
	// Namespace is the path of subagents; empty for the root.
	Namespace []string        `json:"namespace"`
	Data      json.RawMessage `json:"data"`

	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON keeps the text.
func (e *Event) UnmarshalJSON(raw []byte) error {
	type plain Event
	if err := json.Unmarshal(raw, (*plain)(e)); err != nil {
		return err
	}
	e.Raw = append(json.RawMessage(nil), raw...)
	return nil
}

// Page is a part of a run's committed log.
type Page struct {
	Events []Event `json:"events"`
	// NextCursor goes into after; nil before the first event.
	NextCursor *uint64 `json:"next_cursor"`
	Ended      bool    `json:"ended"`
}

// Cancelled is what a cancel was answered.
type Cancelled struct {
	Cancelled   bool   `json:"cancelled"`
	RunID       string `json:"run_id"`
	Confirmed   bool   `json:"confirmed"`
	SideEffects string `json:"side_effect_status"`
}

// Start starts a run.
func (c *Client) Start(ctx context.Context, s Start) (Started, error) {
	var out Started
	return out, c.call(ctx, http.MethodPost, "/api/v1/runs", s, &out)
}

// Run gives the status of a run.
func (c *Client) Run(ctx context.Context, runID string) (Run, error) {
	var out Run
	return out, c.call(ctx, http.MethodGet, "/api/v1/runs/"+url.PathEscape(runID), nil, &out)
}

// Cancel cancels a run and waits as long as the server does.
func (c *Client) Cancel(ctx context.Context, runID string) (Cancelled, error) {
	var out Cancelled
	return out, c.call(ctx, http.MethodPost, "/api/v1/runs/"+url.PathEscape(runID)+":cancel", nil, &out)
}

// Events gives the page of at most limit events that follows the sequence after;
// nil begins with the first.
func (c *Client) Events(ctx context.Context, runID string, after *uint64, limit int) (Page, error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	if after != nil {
		q.Set("after", strconv.FormatUint(*after, 10))
	}
	var out Page
	return out, c.call(ctx, http.MethodGet, "/api/v1/runs/"+url.PathEscape(runID)+"/events?"+q.Encode(), nil, &out)
}

// Log gives all committed events of a run, page by page.
func (c *Client) Log(ctx context.Context, runID string, limit int) (events []Event, ended bool, err error) {
	var after *uint64
	for {
		page, err := c.Events(ctx, runID, after, limit)
		if err != nil {
			return nil, false, err
		}
		events = append(events, page.Events...)
		// A page may be empty although there is more: what is for operators only
		// is left out of it.
		done := page.NextCursor == nil || (after != nil && *page.NextCursor == *after)
		if page.Ended || done {
			return events, page.Ended, nil
		}
		after = page.NextCursor
	}
}
