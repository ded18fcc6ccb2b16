// Package anthropicmessages is the wire of Anthropic Messages.
package anthropicmessages

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"cofferdam.dev/services/worker/internal/native/model"
)

// wire names the seals of this wire.
const wire = "anthropic_messages"

// Model speaks the wire.
type Model struct{ messages anthropic.MessageService }

// New makes a model on a client and a root URL that ends in /. A service of the
// SDK, unlike a client, takes no endpoint and no credential from the environment;
// its traces would, and may have prompts in them, so they are off. It never
// repeats a call: the loop does, which knows what was emitted.
func New(client *http.Client, rootURL string) *Model {
	return &Model{messages: anthropic.NewMessageService(
		option.WithBaseURL(rootURL), option.WithHTTPClient(client), option.WithMaxRetries(0),
		option.WithoutOpenTelemetry(), option.WithOpenTelemetryPropagation(false))}
}

// Stream implements model.Model. The terminal of this wire is message_stop.
func (m *Model) Stream(ctx context.Context, r model.Request, s model.Sink) (model.End, error) {
	stream := m.messages.NewStreaming(ctx, params(r))
	defer func() { _ = stream.Close() }() // what it said is read, or does not matter
	began := stream.Err() == nil
	a := answer{Sink: s}
	for !a.whole && stream.Next() {
		if err := a.take(ctx, stream.Current()); err != nil {
			return model.End{}, err
		}
	}
	switch {
	case stream.Err() != nil:
		return model.End{}, failure(ctx, stream.Err(), began)
	case ctx.Err() != nil, !a.whole, a.reason == "":
		return model.End{}, model.Cut(ctx)
	}
	return model.End{StopReason: stopReason(a.reason), Usage: a.usage.usage()}, nil
}

func failure(ctx context.Context, err error, began bool) error {
	var api *anthropic.Error
	switch {
	case ctx.Err() != nil:
	case errors.As(err, &api) && api.StatusCode < http.StatusBadRequest: // the stream was answered, and has an error in it
		return model.Reported([]byte(api.RawJSON()))
	case errors.As(err, &api):
		var h http.Header
		if api.Response != nil {
			h = api.Response.Header
		}
		return model.Refused(api.StatusCode, h, []byte(api.RawJSON()))
	}
	return model.Broken(ctx, err, began)
}

func stopReason(reason string) string {
	switch anthropic.StopReason(reason) {
	case anthropic.StopReasonEndTurn, anthropic.StopReasonStopSequence:
		return model.StopEnd
	case anthropic.StopReasonMaxTokens, "model_context_window_exceeded":
		return model.StopLength
	case anthropic.StopReasonToolUse:
		return model.StopCalls
	default:
		return reason
	}
}

// answer is what has to be known of an answer between its events.
type answer struct {
	model.Sink

	reason string
	whole  bool
	usage  counts
	// block is what is open; blocks of this wire come one after another.
	block block
}

type block struct {
	kind      string
	signature strings.Builder
	// input of a call that did not come in pieces.
	input    string
	streamed bool
}

func (a *answer) take(ctx context.Context, e anthropic.MessageStreamEventUnion) error {
	switch e.Type {
	case "message_start":
		a.usage.start(e.Message.Usage)
	case "content_block_start":
		return a.begin(ctx, e)
	case "content_block_delta":
		return a.delta(ctx, e)
	case "content_block_stop":
		return a.end(e.Index)
	case "message_delta":
		if e.Delta.StopReason != "" {
			a.reason = string(e.Delta.StopReason)
		}
		a.usage.update(e.Usage)
	case "message_stop":
		a.whole = true
	}
	return nil // what else there is was not asked for
}

func (a *answer) begin(ctx context.Context, e anthropic.MessageStreamEventUnion) error {
	b := e.ContentBlock
	a.block = block{kind: b.Type}
	switch b.Type {
	case "text":
		return a.Text(ctx, b.Text)
	case "thinking":
		a.block.signature.WriteString(b.Signature)
		return a.Reasoning(ctx, b.Thinking)
	case "redacted_thinking":
		return a.Seal(model.Seal{Wire: wire, Opaque: b.Data, Hidden: true})
	case "tool_use":
		if raw := b.JSON.Input.Raw(); raw != "{}" && raw != "null" {
			a.block.input = raw
		}
		return a.Call(model.Fragment{Index: e.Index, ID: b.ID, Name: b.Name})
	}
	return nil
}

func (a *answer) delta(ctx context.Context, e anthropic.MessageStreamEventUnion) error {
	switch d := e.Delta; d.Type {
	case "text_delta":
		return a.Text(ctx, d.Text)
	case "thinking_delta":
		return a.Reasoning(ctx, d.Thinking)
	case "signature_delta":
		a.block.signature.WriteString(d.Signature)
	case "input_json_delta":
		if a.block.kind != "tool_use" {
			return nil // of a tool that the provider runs itself
		}
		a.block.streamed = a.block.streamed || d.PartialJSON != ""
		return a.Call(model.Fragment{Index: e.Index, Arguments: d.PartialJSON})
	}
	return nil
}

func (a *answer) end(index int64) error {
	b := &a.block
	switch {
	case b.kind == "thinking" && b.signature.Len() > 0:
		return a.Seal(model.Seal{Wire: wire, Opaque: b.signature.String()})
	case b.kind == "tool_use" && !b.streamed && b.input != "":
		return a.Call(model.Fragment{Index: index, Arguments: b.input})
	}
	return nil
}
