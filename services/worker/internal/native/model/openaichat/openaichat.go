// Package openaichat is the wire of OpenAI Chat Completions.
package openaichat

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/openai/openai-go/v3"

	"cofferdam.dev/services/worker/internal/native/model"
	"cofferdam.dev/services/worker/internal/native/model/openaiwire"
)

// Model speaks the wire.
type Model struct{ chat openai.ChatCompletionService }

// New makes a model on a client and a base URL that ends in /v1/.
func New(client *http.Client, baseURL string) *Model {
	return &Model{chat: openai.NewChatCompletionService(openaiwire.Options(client, baseURL)...)}
}

// Stream implements model.Model. The terminal of this wire is the finish reason.
func (m *Model) Stream(ctx context.Context, r model.Request, s model.Sink) (model.End, error) {
	p, err := params(r)
	if err != nil {
		return model.End{}, err
	}
	stream := m.chat.NewStreaming(ctx, p)
	defer func() { _ = stream.Close() }() // what it said is read, or does not matter
	began := stream.Err() == nil
	var end model.End
	for stream.Next() {
		if err := chunk(ctx, stream.Current(), s, &end); err != nil {
			return model.End{}, err
		}
	}
	switch {
	case stream.Err() != nil:
		return model.End{}, openaiwire.Failure(ctx, stream.Err(), began)
	case ctx.Err() != nil, end.StopReason == "":
		return model.End{}, model.Cut(ctx)
	}
	return end, nil
}

// chunk takes one chunk. Only the first choice was asked for.
func chunk(ctx context.Context, c openai.ChatCompletionChunk, s model.Sink, end *model.End) error {
	if c.JSON.Usage.Valid() { // for the whole answer so far
		end.Usage = usageOf(c.Usage)
	}
	if len(c.Choices) == 0 {
		return nil
	}
	choice := c.Choices[0]
	if err := s.Reasoning(ctx, reasoningOf(choice.Delta)); err != nil {
		return err
	}
	// A refusal is an answer too, and its text is for the user.
	if err := s.Text(ctx, choice.Delta.Content+choice.Delta.Refusal); err != nil {
		return err
	}
	for _, d := range choice.Delta.ToolCalls {
		f := model.Fragment{Index: d.Index, ID: d.ID, Name: d.Function.Name, Arguments: d.Function.Arguments}
		if err := s.Call(f); err != nil {
			return err
		}
	}
	if choice.FinishReason != "" {
		end.StopReason = choice.FinishReason
	}
	return nil
}

// reasoningOf reads the field that providers of this wire use for reasoning.
func reasoningOf(d openai.ChatCompletionChunkChoiceDelta) string {
	f, ok := d.JSON.ExtraFields["reasoning_content"]
	if !ok {
		return ""
	}
	var s string
	if json.Unmarshal([]byte(f.Raw()), &s) != nil {
		return ""
	}
	return s
}

func usageOf(u openai.CompletionUsage) model.Usage {
	return model.Usage{
		Input:  model.Count(u.JSON.PromptTokens.Valid(), u.PromptTokens),
		Output: model.Count(u.JSON.CompletionTokens.Valid(), u.CompletionTokens),
		Cached: model.Count(u.PromptTokensDetails.JSON.CachedTokens.Valid(), u.PromptTokensDetails.CachedTokens),
	}
}
