package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/shared"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// ask streams one answer. A stream that ends without a finish reason was cut
// off, which is never taken for an answer.
func (t *turn) ask(ctx context.Context) (answer, error) {
	stream := t.chat.NewStreaming(ctx, t.params())
	defer func() { _ = stream.Close() }() // what it said is read, or does not matter
	began := stream.Err() == nil          // the request itself has not failed
	w := &writer{turn: t}
	for stream.Next() {
		if err := w.chunk(ctx, stream.Current()); err != nil {
			return answer{}, err
		}
	}
	if err := stream.Err(); err != nil {
		return answer{}, modelFault(ctx, err, began)
	}
	if ctx.Err() != nil {
		return answer{}, fault.From(ctx.Err(), "native.ask")
	}
	if w.stopReason == "" {
		return answer{}, fault.Wrap(errors.New("model stream ended without a finish reason"), fault.ModelFailed, "native.ask")
	}
	return w.finish(ctx)
}

func (t *turn) params() openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{
		Model:         t.Model.Alias,
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		Tools:         t.offered,
	}
	if t.construction.Model.MaxOutputTokens > 0 {
		p.MaxCompletionTokens = openai.Int(int64(t.construction.Model.MaxOutputTokens))
	}
	if t.options.Temperature != nil {
		p.Temperature = openai.Float(*t.options.Temperature)
	}
	if t.construction.Prompt != "" {
		p.Messages = append(p.Messages, openai.SystemMessage(t.construction.Prompt))
	}
	for _, m := range t.state.Messages {
		p.Messages = append(p.Messages, m.param())
	}
	return p
}

// offer is a tool as the model sees it. Its schema travels as it came: numbers
// keep their digits.
func offer(t harness.Tool) (openai.ChatCompletionToolUnionParam, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(t.InputSchema, &members); err != nil || members == nil {
		return openai.ChatCompletionToolUnionParam{},
			fault.Wrap(err, fault.InvalidRequest, "native.offer", fault.Detail("tools[].input_schema: one JSON object"))
	}
	schema := make(map[string]any, len(members))
	for name, value := range members {
		schema[name] = value
	}
	return openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: t.OfferedName, Description: openai.String(t.Description), Parameters: schema,
	}), nil
}

func (m message) param() openai.ChatCompletionMessageParamUnion {
	switch m.Role {
	case roleTool:
		return openai.ToolMessage(m.Text, m.CallID)
	case roleAssistant:
		var a openai.ChatCompletionAssistantMessageParam
		if m.Text != "" {
			a.Content.OfString = openai.String(m.Text)
		}
		for _, c := range m.Calls {
			a.ToolCalls = append(a.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
				OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
					ID:       c.ID,
					Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: c.Name, Arguments: string(c.Arguments)},
				},
			})
		}
		return openai.ChatCompletionMessageParamUnion{OfAssistant: &a}
	case roleUser:
	}
	return openai.UserMessage(m.Text)
}

// modelFault gives a failed model call its code: the proxy's own, where it has
// said one, else by status. What fails before an answer began may be asked again.
// The provider's text goes nowhere, nor does the request, which has the run's
// capability.
func modelFault(ctx context.Context, err error, began bool) error {
	const op = "native.ask"
	var (
		known    *fault.Error
		api      *openai.Error
		inStream *ssestream.StreamError
	)
	switch {
	case ctx.Err() != nil:
		return fault.From(ctx.Err(), op)
	case errors.As(err, &known):
		return known
	case errors.As(err, &api):
		return statusFault(api)
	case errors.As(err, &inStream):
		return fault.Wrap(errors.New("the model's stream has an error in it"), fault.ModelFailed, op)
	case began:
		return fault.Wrap(err, fault.ModelFailed, op)
	default:
		return fault.Wrap(err, fault.ModelUnavailable, op)
	}
}

func statusFault(api *openai.Error) error {
	code := fault.Code(api.Code)
	switch {
	case code == fault.Cancelled: // the proxy was stopped; the run was not
		code = fault.ModelUnavailable
	case code.Known():
	case api.StatusCode == http.StatusTooManyRequests:
		code = fault.RateLimited
	case api.StatusCode >= http.StatusInternalServerError:
		code = fault.ModelUnavailable
	default:
		code = fault.ModelFailed
	}
	cause := fmt.Errorf("model call was answered with status %d", api.StatusCode)
	if id := incidentOf(api); id != "" {
		cause = fmt.Errorf("%w, incident %s", cause, id)
	}
	return fault.Wrap(cause, code, "native.ask", fault.RetryAfter(retryAfter(api)))
}

// incidentOf leads from the worker's log to the proxy's.
func incidentOf(api *openai.Error) string {
	var id string
	field := api.JSON.ExtraFields["incident_id"]
	if json.Unmarshal([]byte(field.Raw()), &id) != nil || !event.ValidID(id) {
		return ""
	}
	return id
}

// maxRetryAfter is the longest that is believed.
const maxRetryAfter = time.Hour

func retryAfter(api *openai.Error) time.Duration {
	if api.Response == nil {
		return 0
	}
	n, err := strconv.Atoi(api.Response.Header.Get("Retry-After"))
	if err != nil || n <= 0 {
		return 0
	}
	return min(time.Duration(min(n, int(maxRetryAfter/time.Second)))*time.Second, maxRetryAfter)
}
