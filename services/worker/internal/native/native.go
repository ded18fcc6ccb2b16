// Package native is the adapter of Cofferdam's own agent loop: it streams from a
// model, calls tools through the ToolBroker, and keeps the conversation as
// thread state.
package native

import (
	"context"
	"encoding/json"

	"github.com/openai/openai-go/v3"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
)

// ID of the adapter, and its version: a change of the state's meaning or of the
// events' order is another version.
const (
	ID      = "native"
	Version = "1.0.0"
)

// Options of the adapter; unknown ones are refused.
type Options struct {
	// Temperature of the model, 0 to 2; absent leaves it to the model.
	Temperature *float64 `json:"temperature,omitempty"`
	// ParallelToolCalls is how many calls of one answer run at once, 1 to 16.
	ParallelToolCalls int `json:"parallel_tool_calls,omitempty"`
}

const (
	defaultParallel = 4
	maxParallel     = 16
)

const optionsSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "parallel_tool_calls": {"type": "integer", "minimum": 1, "maximum": 16}
  },
  "additionalProperties": false
}`

// Adapter is the native adapter.
type Adapter struct{}

// New makes the adapter.
func New() *Adapter { return &Adapter{} }

// Descriptor of the adapter.
func (*Adapter) Descriptor() harness.Descriptor {
	return harness.Descriptor{
		ID: ID, AdapterVersion: Version, ExecutionMode: "sandbox_pod", OptionsSchema: json.RawMessage(optionsSchema),
	}
}

// Health has nothing to ask: the adapter is code of the worker itself.
func (*Adapter) Health(ctx context.Context) error { return ctx.Err() }

// Initialize checks the options and prepares the tools.
func (*Adapter) Initialize(_ context.Context, c harness.Construction) (harness.Runtime, error) {
	o, err := parseOptions(c.Options)
	if err != nil {
		return nil, err
	}
	rt := &runtime{construction: c, options: o, byName: make(map[string]harness.Tool, len(c.Tools))}
	for _, t := range c.Tools {
		param, err := offer(t)
		if err != nil {
			return nil, err
		}
		rt.byName[t.OfferedName] = t
		rt.offered = append(rt.offered, param)
	}
	return rt, nil
}

func parseOptions(raw json.RawMessage) (Options, error) {
	o := Options{ParallelToolCalls: defaultParallel}
	if len(raw) > 0 {
		if err := strictjson.Unmarshal(raw, &o, strictjson.Options{}); err != nil {
			return o, fault.Wrap(err, fault.HarnessOptionsInvalid, "native.options", fault.Detail("harness_options: "+err.Error()))
		}
	}
	switch {
	case o.Temperature != nil && (*o.Temperature < 0 || *o.Temperature > 2):
		return o, fault.New(fault.HarnessOptionsInvalid, "native.options", fault.Detail("harness_options.temperature: 0 to 2"))
	case o.ParallelToolCalls < 1 || o.ParallelToolCalls > maxParallel:
		return o, fault.New(fault.HarnessOptionsInvalid, "native.options", fault.Detail("harness_options.parallel_tool_calls: 1 to 16"))
	}
	return o, nil
}

// runtime holds what bind gave. Everything of a turn lives in the turn.
type runtime struct {
	construction harness.Construction
	options      Options
	// byName has the tools by the names that the model is offered.
	byName  map[string]harness.Tool
	offered []openai.ChatCompletionToolUnionParam
}

// Cleanup has nothing to leave behind: connections belong to the facades.
func (*runtime) Cleanup(context.Context) error { return nil }

// Resume is not there yet.
func (*runtime) Resume(context.Context, harness.Decision, harness.Facades, harness.Emitter) (harness.Result, error) {
	return harness.Result{}, fault.New(fault.NotImplemented, "native.Resume")
}
