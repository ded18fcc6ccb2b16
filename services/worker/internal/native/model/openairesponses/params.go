package openairesponses

import (
	"fmt"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"cofferdam.dev/services/worker/internal/native/model"
)

func params(r model.Request) (responses.ResponseNewParams, error) {
	p := responses.ResponseNewParams{Model: r.Model, Store: openai.Bool(false)}
	if r.System != "" {
		p.Instructions = openai.String(r.System)
	}
	if r.MaxOutputTokens > 0 {
		p.MaxOutputTokens = openai.Int(int64(r.MaxOutputTokens))
	}
	if r.Temperature != nil {
		p.Temperature = openai.Float(*r.Temperature)
	}
	if r.Effort != "" {
		p.Reasoning = shared.ReasoningParam{Effort: shared.ReasoningEffort(r.Effort), Summary: shared.ReasoningSummaryAuto}
		// What is not stored there has to be sent back.
		p.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
	}
	for _, m := range r.Messages {
		p.Input.OfInputItemList = append(p.Input.OfInputItemList, items(m)...)
	}
	for _, o := range r.Offers {
		schema, err := o.Members()
		if err != nil {
			return p, fmt.Errorf("tool %s: %w", o.Name, err)
		}
		f := responses.FunctionToolParam{Name: o.Name, Parameters: schema, Strict: openai.Bool(false)}
		if o.Description != "" {
			f.Description = openai.String(o.Description)
		}
		p.Tools = append(p.Tools, responses.ToolUnionParam{OfFunction: &f})
	}
	return p, nil
}

// items of one message: an answer is as many as it has parts.
func items(m model.Message) []responses.ResponseInputItemUnionParam {
	if m.Role == model.User {
		return []responses.ResponseInputItemUnionParam{user(m)}
	}
	var out []responses.ResponseInputItemUnionParam
	for _, p := range m.Parts {
		switch p.Kind {
		case model.Text:
			out = append(out, responses.ResponseInputItemParamOfMessage(p.Text, responses.EasyInputMessageRoleAssistant))
		case model.Reasoning:
			if p.Seal != nil && p.Seal.Wire == wire {
				out = append(out, reasoning(p))
			}
		case model.Call:
			out = append(out, responses.ResponseInputItemParamOfFunctionCall(string(p.Arguments), p.CallID, p.Name))
		case model.Result:
			out = append(out, result(p))
		case model.Image, model.Document: // of a user only
		}
	}
	return out
}

func reasoning(p model.Part) responses.ResponseInputItemUnionParam {
	summary := []responses.ResponseReasoningItemSummaryParam{}
	if p.Text != "" {
		summary = append(summary, responses.ResponseReasoningItemSummaryParam{Text: p.Text})
	}
	item := responses.ResponseInputItemParamOfReasoning(p.Seal.ID, summary)
	item.OfReasoning.EncryptedContent = openai.String(p.Seal.Opaque)
	return item
}

func result(p model.Part) responses.ResponseInputItemUnionParam {
	item := responses.ResponseInputItemParamOfFunctionCallOutput(p.Text)
	item.OfFunctionCallOutput.CallID = openai.String(p.CallID)
	return item
}

func user(m model.Message) responses.ResponseInputItemUnionParam {
	var content responses.ResponseInputMessageContentListParam
	for _, p := range m.Parts {
		switch p.Kind {
		case model.Image:
			image := responses.ResponseInputContentParamOfInputImage(responses.ResponseInputImageDetailAuto)
			image.OfInputImage.ImageURL = openai.String(p.DataURL())
			content = append(content, image)
		case model.Document:
			content = append(content, responses.ResponseInputContentUnionParam{OfInputFile: &responses.ResponseInputFileParam{
				FileData: openai.String(p.DataURL()), Filename: openai.String(p.Name),
			}})
		default:
			content = append(content, responses.ResponseInputContentParamOfInputText(p.Text))
		}
	}
	return responses.ResponseInputItemParamOfMessage(content, responses.EasyInputMessageRoleUser)
}
