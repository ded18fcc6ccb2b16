package loopback

import (
	"encoding/json"

	"cofferdam.dev/pkg/event"
)

// told is a count that an event may have.
func told(n *json.Number) *uint64 {
	if n == nil {
		return nil
	}
	i, err := n.Int64()
	if err != nil || i < 0 || i > event.MaxInteger {
		return nil
	}
	u := uint64(i)
	return &u
}

// latest replaces what was told before: usage in a stream is that of the answer
// so far.
func (u *Usage) latest(input, output, cached *uint64) {
	if input != nil {
		u.Input = input
	}
	if output != nil {
		u.Output = output
	}
	if cached != nil {
		u.Cached = cached
	}
}

// isError is what an answer has in place of one.
func isError(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// chatChunk is a chunk of Chat Completions, or a whole answer.
type chatChunk struct {
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Input   *json.Number `json:"prompt_tokens"`
		Output  *json.Number `json:"completion_tokens"`
		Details struct {
			Cached *json.Number `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

func (c chatChunk) into(r *reading) {
	r.failed = r.failed || isError(c.Error)
	for _, choice := range c.Choices {
		r.terminal = r.terminal || choice.FinishReason != nil && *choice.FinishReason != ""
	}
	if c.Usage != nil {
		r.used.latest(told(c.Usage.Input), told(c.Usage.Output), told(c.Usage.Details.Cached))
	}
}

// responsesEvent is an event of Responses, or a whole answer.
type responsesEvent struct {
	responsesBody

	Type     string        `json:"type"`
	Response responsesBody `json:"response"`
}

type responsesBody struct {
	Status string          `json:"status"`
	Error  json.RawMessage `json:"error"`
	Usage  *struct {
		Input   *json.Number `json:"input_tokens"`
		Output  *json.Number `json:"output_tokens"`
		Details struct {
			Cached *json.Number `json:"cached_tokens"`
		} `json:"input_tokens_details"`
	} `json:"usage"`
}

func (e responsesEvent) into(r *reading) {
	for _, b := range []responsesBody{e.responsesBody, e.Response} {
		r.failed = r.failed || isError(b.Error) || b.Status == "failed"
		if b.Usage != nil {
			r.used.latest(told(b.Usage.Input), told(b.Usage.Output), told(b.Usage.Details.Cached))
		}
	}
	switch e.Type {
	case "response.completed", "response.incomplete":
		r.terminal = true
	case "response.failed", "error":
		r.failed = true
	}
}

// anthropicEvent is an event of Messages, or a whole answer.
type anthropicEvent struct {
	Type    string          `json:"type"`
	Error   json.RawMessage `json:"error"`
	Usage   *anthropicUsage `json:"usage"`
	Message struct {
		Usage *anthropicUsage `json:"usage"`
	} `json:"message"`
}

type anthropicUsage struct {
	Input   *json.Number `json:"input_tokens"`
	Output  *json.Number `json:"output_tokens"`
	Read    *json.Number `json:"cache_read_input_tokens"`
	Written *json.Number `json:"cache_creation_input_tokens"`
}

func (e anthropicEvent) into(r *reading) {
	r.failed = r.failed || e.Type == "error" || isError(e.Error)
	r.terminal = r.terminal || e.Type == "message_stop"
	for _, u := range []*anthropicUsage{e.Message.Usage, e.Usage} {
		if u != nil {
			// What was cached is counted apart on this wire.
			r.used.latest(sum(sum(told(u.Input), told(u.Read)), told(u.Written)), told(u.Output), told(u.Read))
		}
	}
}

// geminiChunk is a chunk of streamGenerateContent, or a whole answer.
type geminiChunk struct {
	Error      json.RawMessage `json:"error"`
	Candidates []struct {
		FinishReason string `json:"finishReason"`
	} `json:"candidates"`
	Usage *struct {
		Input    *json.Number `json:"promptTokenCount"`
		Output   *json.Number `json:"candidatesTokenCount"`
		Thoughts *json.Number `json:"thoughtsTokenCount"`
		Cached   *json.Number `json:"cachedContentTokenCount"`
	} `json:"usageMetadata"`
}

func (c geminiChunk) into(r *reading) {
	r.failed = r.failed || isError(c.Error)
	for _, candidate := range c.Candidates {
		r.terminal = r.terminal || candidate.FinishReason != ""
	}
	if c.Usage != nil {
		r.used.latest(told(c.Usage.Input), sum(told(c.Usage.Output), told(c.Usage.Thoughts)), told(c.Usage.Cached))
	}
}
