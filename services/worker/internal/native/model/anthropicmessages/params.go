package anthropicmessages

import (
	"encoding/json"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"cofferdam.dev/services/worker/internal/native/model"
)

// defaultMaxTokens stands where the agent has no bound: this wire wants one, and
// every model takes this one.
const defaultMaxTokens = 4096

// noText stands where a message has nothing that this wire would take: it refuses
// text of nothing but space.
const noText = "(no text)"

func params(r model.Request) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{Model: r.Model, MaxTokens: defaultMaxTokens}
	if r.MaxOutputTokens > 0 {
		p.MaxTokens = int64(r.MaxOutputTokens)
	}
	if r.System != "" {
		p.System = []anthropic.TextBlockParam{{Text: r.System}}
	}
	if r.Effort != "" {
		p.Thinking.OfAdaptive = &anthropic.ThinkingConfigAdaptiveParam{Display: anthropic.ThinkingConfigAdaptiveDisplaySummarized}
		p.OutputConfig.Effort = anthropic.OutputConfigEffort(r.Effort)
	} else if r.Temperature != nil { // a model that thinks takes none
		p.Temperature = anthropic.Float(*r.Temperature)
	}
	for _, m := range r.Messages {
		p.Messages = append(p.Messages, message(m))
	}
	for _, o := range r.Offers {
		t := anthropic.ToolParam{Name: o.Name, InputSchema: param.Override[anthropic.ToolInputSchemaParam](json.RawMessage(o.Schema))}
		if o.Description != "" {
			t.Description = anthropic.String(o.Description)
		}
		p.Tools = append(p.Tools, anthropic.ToolUnionParam{OfTool: &t})
	}
	return p
}

// message has the results of tools as a user's words.
func message(m model.Message) anthropic.MessageParam {
	var blocks []anthropic.ContentBlockParamUnion
	for _, p := range m.Parts {
		if b, ok := blockOf(p); ok {
			blocks = append(blocks, b)
		}
	}
	if len(blocks) == 0 {
		blocks = append(blocks, anthropic.NewTextBlock(noText))
	}
	if m.Role == model.Assistant {
		return anthropic.NewAssistantMessage(blocks...)
	}
	return anthropic.NewUserMessage(blocks...)
}

func blockOf(p model.Part) (b anthropic.ContentBlockParamUnion, ok bool) {
	switch p.Kind {
	case model.Text:
		return anthropic.NewTextBlock(p.Text), strings.TrimSpace(p.Text) != ""
	case model.Reasoning:
		return thinking(p)
	case model.Call:
		return anthropic.NewToolUseBlock(p.CallID, p.Arguments, p.Name), true
	case model.Result:
		return result(p), true
	case model.Image:
		return anthropic.NewImageBlockBase64(p.MIMEType, p.Base64()), true
	case model.Document:
		b := anthropic.NewDocumentBlock(anthropic.Base64PDFSourceParam{Data: p.Base64()})
		if p.Name != "" {
			b.OfDocument.Title = anthropic.String(p.Name)
		}
		return b, true
	}
	return b, false
}

// thinking goes back only with the provider's own seal.
func thinking(p model.Part) (b anthropic.ContentBlockParamUnion, ok bool) {
	switch {
	case p.Seal == nil || p.Seal.Wire != wire:
		return b, false
	case p.Seal.Hidden:
		return anthropic.NewRedactedThinkingBlock(p.Seal.Opaque), true
	default:
		return anthropic.NewThinkingBlock(p.Seal.Opaque, p.Text), true
	}
}

func result(p model.Part) anthropic.ContentBlockParamUnion {
	r := anthropic.ToolResultBlockParam{ToolUseID: p.CallID}
	if p.Failed {
		r.IsError = anthropic.Bool(true)
	}
	if strings.TrimSpace(p.Text) != "" {
		r.Content = []anthropic.ToolResultBlockParamContentUnion{{OfText: &anthropic.TextBlockParam{Text: p.Text}}}
	}
	return anthropic.ContentBlockParamUnion{OfToolResult: &r}
}
