// Package openairesponses is the wire of OpenAI Responses. Nothing is stored at
// the provider: each request has the whole conversation.
package openairesponses

import (
	"context"
	"net/http"

	"github.com/openai/openai-go/v3/responses"

	"cofferdam.dev/services/worker/internal/native/model"
	"cofferdam.dev/services/worker/internal/native/model/openaiwire"
)

// wire names the seals of this wire.
const wire = "openai_responses"

// Model speaks the wire.
type Model struct{ responses responses.ResponseService }

// New makes a model on a client and a base URL that ends in /v1/.
func New(client *http.Client, baseURL string) *Model {
	return &Model{responses: responses.NewResponseService(openaiwire.Options(client, baseURL)...)}
}

// Stream implements model.Model. The terminals of this wire are
// response.completed and response.incomplete.
func (m *Model) Stream(ctx context.Context, r model.Request, s model.Sink) (model.End, error) {
	p, err := params(r)
	if err != nil {
		return model.End{}, err
	}
	stream := m.responses.NewStreaming(ctx, p)
	defer func() { _ = stream.Close() }() // what it said is read, or does not matter
	began := stream.Err() == nil
	a := answer{Sink: s, streamed: make(map[int64]bool)}
	for stream.Next() {
		if err := a.take(ctx, stream.Current()); err != nil {
			return model.End{}, err
		}
	}
	switch {
	case stream.Err() != nil:
		return model.End{}, openaiwire.Failure(ctx, stream.Err(), began)
	case ctx.Err() != nil, a.end.StopReason == "":
		return model.End{}, model.Cut(ctx)
	}
	return a.end, nil
}

// answer is what has to be known of an answer between its events.
type answer struct {
	model.Sink

	end model.End
	// calls says that the answer has calls, which its terminal does not tell.
	calls bool
	// streamed has the items whose arguments came in pieces.
	streamed map[int64]bool
}

func (a *answer) take(ctx context.Context, e responses.ResponseStreamEventUnion) error {
	switch e.Type {
	case "response.output_text.delta", "response.refusal.delta": // a refusal is for the user too
		return a.Text(ctx, e.Delta)
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		return a.Reasoning(ctx, e.Delta)
	case "response.reasoning_summary_part.added":
		if e.SummaryIndex > 0 {
			return a.Reasoning(ctx, "\n\n")
		}
	case "response.output_item.added":
		if e.Item.Type == "function_call" {
			a.calls = true
			return a.Call(model.Fragment{Index: e.OutputIndex, ID: e.Item.CallID, Name: e.Item.Name})
		}
	case "response.function_call_arguments.delta":
		a.streamed[e.OutputIndex] = a.streamed[e.OutputIndex] || e.Delta != ""
		return a.Call(model.Fragment{Index: e.OutputIndex, Arguments: e.Delta})
	case "response.function_call_arguments.done":
		return a.whole(e.OutputIndex, e.Arguments)
	case "response.output_item.done":
		return a.done(e)
	case "response.completed":
		a.end = model.End{StopReason: model.StopEnd, Usage: usageOf(e.Response)}
		if a.calls {
			a.end.StopReason = model.StopCalls
		}
	case "response.incomplete":
		a.end = model.End{StopReason: incomplete(e.Response.IncompleteDetails.Reason), Usage: usageOf(e.Response)}
	case "response.failed":
		return model.Reported([]byte(e.Response.Error.RawJSON()))
	case "error":
		return model.Reported([]byte(e.RawJSON()))
	}
	return nil // what else there is was not asked for
}

// whole gives the arguments of a call that did not come in pieces.
func (a *answer) whole(index int64, arguments string) error {
	if a.streamed[index] || arguments == "" {
		return nil
	}
	a.streamed[index] = true
	return a.Call(model.Fragment{Index: index, Arguments: arguments})
}

func (a *answer) done(e responses.ResponseStreamEventUnion) error {
	switch e.Item.Type {
	case "function_call":
		return a.whole(e.OutputIndex, e.Item.Arguments.OfString)
	case "reasoning":
		if e.Item.EncryptedContent != "" {
			return a.Seal(model.Seal{Wire: wire, ID: e.Item.ID, Opaque: e.Item.EncryptedContent})
		}
	}
	return nil
}

func incomplete(reason string) string {
	switch reason {
	case "max_output_tokens":
		return model.StopLength
	case "":
		return "incomplete"
	default: // content_filter has the same name everywhere
		return reason
	}
}

func usageOf(r responses.Response) model.Usage {
	if !r.JSON.Usage.Valid() {
		return model.Usage{}
	}
	u := r.Usage
	return model.Usage{
		Input:  model.Count(u.JSON.InputTokens.Valid(), u.InputTokens),
		Output: model.Count(u.JSON.OutputTokens.Valid(), u.OutputTokens),
		Cached: model.Count(u.InputTokensDetails.JSON.CachedTokens.Valid(), u.InputTokensDetails.CachedTokens),
	}
}
