package openaichat

import (
	"fmt"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"cofferdam.dev/services/worker/internal/native/model"
)

func params(r model.Request) (openai.ChatCompletionNewParams, error) {
	p := openai.ChatCompletionNewParams{
		Model:           r.Model,
		StreamOptions:   openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		ReasoningEffort: shared.ReasoningEffort(r.Effort),
	}
	if r.MaxOutputTokens > 0 {
		p.MaxCompletionTokens = openai.Int(int64(r.MaxOutputTokens))
	}
	if r.Temperature != nil {
		p.Temperature = openai.Float(*r.Temperature)
	}
	if r.System != "" {
		p.Messages = append(p.Messages, openai.SystemMessage(r.System))
	}
	for _, m := range r.Messages {
		p.Messages = append(p.Messages, messages(m)...)
	}
	for _, o := range r.Offers {
		schema, err := o.Members()
		if err != nil {
			return p, fmt.Errorf("tool %s: %w", o.Name, err)
		}
		f := shared.FunctionDefinitionParam{Name: o.Name, Parameters: schema}
		if o.Description != "" {
			f.Description = openai.String(o.Description)
		}
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(f))
	}
	return p, nil
}

// messages of one message: each result is one of its own on this wire.
func messages(m model.Message) []openai.ChatCompletionMessageParamUnion {
	switch m.Role {
	case model.Assistant:
		return []openai.ChatCompletionMessageParamUnion{assistant(m)}
	case model.Tool:
		var out []openai.ChatCompletionMessageParamUnion
		for _, p := range m.Parts {
			out = append(out, openai.ToolMessage(p.Text, p.CallID))
		}
		return out
	case model.User:
	}
	return []openai.ChatCompletionMessageParamUnion{user(m)}
}

// assistant has no reasoning: this wire does not take it back.
func assistant(m model.Message) openai.ChatCompletionMessageParamUnion {
	var a openai.ChatCompletionAssistantMessageParam
	if text := m.Joined(); text != "" {
		a.Content.OfString = openai.String(text)
	}
	for _, c := range m.Calls() {
		a.ToolCalls = append(a.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID:       c.CallID,
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: c.Name, Arguments: string(c.Arguments)},
			},
		})
	}
	return openai.ChatCompletionMessageParamUnion{OfAssistant: &a}
}

// user is a plain text where there is nothing else: every provider of this wire
// takes that.
func user(m model.Message) openai.ChatCompletionMessageParamUnion {
	var parts []openai.ChatCompletionContentPartUnionParam
	plain := true
	for _, p := range m.Parts {
		switch p.Kind {
		case model.Image:
			parts = append(parts, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: p.DataURL()}))
		case model.Document:
			parts = append(parts, openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{
				FileData: openai.String(p.DataURL()), Filename: openai.String(p.Name),
			}))
		default:
			parts = append(parts, openai.TextContentPart(p.Text))
			continue
		}
		plain = false
	}
	if plain {
		return openai.UserMessage(m.Joined())
	}
	return openai.UserMessage(parts)
}
