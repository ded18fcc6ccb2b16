// Package native is the adapter of Cofferdam's own agent loop: it streams from a
// model, calls tools through the ToolBroker, and keeps the conversation as
// thread state.
package native

import (
	"context"
	"encoding/json"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// ID of the adapter, and its version: a change of the state's meaning or of the
// events' order is another version.
const (
	ID      = "native"
	Version = "1.1.0"
)

// Config of the adapter.
type Config struct {
	// Workspace is the folder in which manifests were materialized. Without one
	// there are no files of manifests to read.
	Workspace string
}

// Adapter is the native adapter.
type Adapter struct{ cfg Config }

// New makes the adapter.
func New(cfg Config) *Adapter { return &Adapter{cfg: cfg} }

// Descriptor of the adapter.
func (*Adapter) Descriptor() harness.Descriptor {
	return harness.Descriptor{
		ID: ID, AdapterVersion: Version, ExecutionMode: "sandbox_pod", OptionsSchema: json.RawMessage(optionsSchema),
		Capabilities: capabilities(),
	}
}

// Health has nothing to ask: the adapter is code of the worker itself.
func (*Adapter) Health(ctx context.Context) error { return ctx.Err() }

// Initialize checks the options and prepares the agents with their tools.
func (a *Adapter) Initialize(_ context.Context, c harness.Construction) (harness.Runtime, error) {
	o, err := parseOptions(c.Options)
	if err != nil {
		return nil, err
	}
	if !speaks(c.Model.Wire) {
		return nil, fault.New(fault.HarnessOptionsInvalid, "native.Initialize",
			fault.Detail("model.wire: the native harness speaks openai_chat, openai_responses and anthropic_messages"))
	}
	if c.Model.Wire == harness.WireAnthropicMessages && o.Temperature != nil && *o.Temperature > 1 {
		return nil, badOption("temperature", "0 to 1 on this model's wire")
	}
	rt := &runtime{construction: c, options: o, workspace: a.cfg.Workspace}
	rt.root, err = rt.agents()
	if err != nil {
		return nil, err
	}
	return rt, nil
}

// runtime holds what bind gave. Everything of a run lives in the run.
type runtime struct {
	construction harness.Construction
	options      Options
	workspace    string
	root         *agent
}

// Cleanup has nothing to leave behind: connections belong to the facades.
func (*runtime) Cleanup(context.Context) error { return nil }
