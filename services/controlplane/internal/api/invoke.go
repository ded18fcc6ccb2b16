package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs"
)

// chatInvoke serves POST /api/v1/chat/invoke: a run as one answer. What a run that
// failed or was cancelled ends by is the error of the answer; a run that asks a
// person ends without success, and says what it asks.
func (a *API) chatInvoke(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	var b chatBody
	if err := decode(w, r, &b); err != nil {
		return err
	}
	started, err := a.chatRun(r, caller, b)
	if err != nil {
		return err
	}
	said := collector{revision: a.revision(r.Context(), caller, started.RunID)}
	err = a.cfg.Runs.Follow(r.Context(), caller, started.RunID, runs.FollowOptions{}, said.take)
	if err != nil && started.New {
		a.disconnected(r, caller, started.RunID, false)
	}
	if err != nil {
		return err
	}
	out := invokeBody{
		Content: said.content.String(), Thinking: said.thinking.String(),
		AgentID: b.AgentID, ConversationID: b.ConversationID, RunID: started.RunID,
	}
	switch end := said.end.(type) {
	case event.RunFinished:
		out.Success = true
	case event.RunInterrupted:
		out.Interrupt, out.Revision = said.asked, said.asks
	case event.RunCancelled:
		return fault.New(fault.Cancelled, "api.invoke", fault.Detail("reason: "+string(end.Reason)))
	case event.RunError:
		return failure(end)
	}
	return writeJSON(w, http.StatusOK, out)
}

type invokeBody struct {
	Success        bool            `json:"success"`
	Content        string          `json:"content"`
	Thinking       string          `json:"thinking,omitempty"`
	AgentID        string          `json:"agent_id"`
	ConversationID string          `json:"conversation_id"`
	RunID          string          `json:"run_id"`
	Interrupt      json.RawMessage `json:"interrupt,omitempty"`
	Revision       *uint64         `json:"revision,omitempty"`
}

// maxRetryAfter is what is said at most, in seconds: a day.
const maxRetryAfter = 24 * 60 * 60

// failure is the error that a run ended by.
func failure(end event.RunError) error {
	code := fault.Code(end.Code)
	if !code.Known() {
		code = fault.Internal
	}
	opts := []fault.Option{fault.SideEffects(string(end.SideEffectStatus))}
	if end.RetryAfterSeconds != nil {
		opts = append(opts, fault.RetryAfter(time.Duration(min(*end.RetryAfterSeconds, maxRetryAfter))*time.Second))
	}
	return fault.New(code, "api.invoke", opts...)
}

// collector keeps what the root of a run says, which is bounded as the run is.
type collector struct {
	content, thinking strings.Builder
	asked             json.RawMessage
	asks              *uint64
	end               event.Data
	revision          func() (uint64, error)
}

func (c *collector) take(_ uint64, raw json.RawMessage) error {
	e, err := decodeEvent(raw, c.revision, func(n uint64) { c.asks = &n })
	if err != nil {
		return err
	}
	if e.Type().Terminal() {
		c.end = e.Data
	}
	if i, ok := e.Data.(event.InterruptRequested); ok {
		c.asked, err = event.InterruptBody(i)
		return err
	}
	if len(e.Namespace) > 0 {
		return nil
	}
	switch d := e.Data.(type) {
	case event.TextStarted:
		parted(&c.content)
	case event.TextDelta:
		c.content.WriteString(d.Delta)
	case event.ReasoningStarted:
		parted(&c.thinking)
	case event.ReasoningDelta:
		c.thinking.WriteString(d.Delta)
	}
	return nil
}

// parted puts an empty line between two messages.
func parted(b *strings.Builder) {
	if b.Len() > 0 {
		b.WriteString("\n\n")
	}
}
