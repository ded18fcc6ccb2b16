// Package acp is the adapter of agent programs that speak the Agent Client
// Protocol on their standard streams. What the agent says is untrusted: events of
// tool calls come from the ToolBroker's answers, the outcome of a turn from what
// the model endpoint saw, and that work has stopped from the end of the agent's
// processes.
package acp

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/loopback"
)

// ID of the adapter, and its version: a change of the state's meaning or of the
// events' order is another version.
const (
	ID      = "acp"
	Version = "1.0.0"
)

const optionsSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {},
  "additionalProperties": false
}`

// Config of an Adapter.
type Config struct {
	// World is where the agent runs. The adapter does not close it.
	World hosted.World
	// Preset of the agent.
	Preset Preset
	// Workspace is the worker's own folder in which the binding's manifests were
	// materialized; they are copied into the world. "" copies nothing.
	Workspace string
	Logger    *slog.Logger
	// Now is the clock by which sessions are made; nil is time.Now.
	Now func() time.Time
	// Siblings is how long further questions are waited for once an agent has asked
	// one; 0 is 250 ms.
	Siblings time.Duration
	// Quiet is how long a late replay has to be silent to be over; 0 is 750 ms.
	Quiet time.Duration
}

// Adapter hosts the agent of one preset.
type Adapter struct{ cfg Config }

// New makes the adapter. The preset has been validated.
func New(cfg Config) *Adapter {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Siblings == 0 {
		cfg.Siblings = 250 * time.Millisecond
	}
	if cfg.Quiet == 0 {
		cfg.Quiet = 750 * time.Millisecond
	}
	return &Adapter{cfg: cfg}
}

// Descriptor of the adapter.
func (a *Adapter) Descriptor() harness.Descriptor {
	return harness.Descriptor{
		ID: ID, AdapterVersion: Version, ExecutionMode: "sandbox_pod", OptionsSchema: json.RawMessage(optionsSchema),
		Capabilities: capabilities(&a.cfg.Preset),
	}
}

// Health asks whether the world is there.
func (a *Adapter) Health(ctx context.Context) error {
	if _, err := a.cfg.World.Limits(ctx); err != nil {
		return fault.Wrap(err, fault.SandboxNotReady, "acp.Health")
	}
	return nil
}

// Initialize checks that the agent can be given what the construction has. The
// program is started with the first run.
func (a *Adapter) Initialize(_ context.Context, c harness.Construction) (harness.Runtime, error) {
	const op = "acp.Initialize"
	if len(c.Options) > 0 {
		var none struct{}
		if err := strictjson.Unmarshal(c.Options, &none, strictjson.Options{}); err != nil {
			return nil, fault.Wrap(err, fault.HarnessOptionsInvalid, op, fault.Detail("harness_options: "+err.Error()))
		}
	}
	p := &a.cfg.Preset
	switch {
	case c.Model.Wire != p.ModelWire:
		return nil, fault.New(fault.HarnessOptionsInvalid, op, fault.Detail(fmt.Sprintf("model.wire: this agent speaks %s", p.ModelWire)))
	case len(c.Tools) > 0 && !p.usesMCP():
		return nil, fault.New(fault.HarnessOptionsInvalid, op, fault.Detail("tools: this agent cannot be given any"))
	}
	if err := loopback.Validate(c.Tools); err != nil {
		return nil, err
	}
	return &runtime{cfg: a.cfg, construction: c, tools: newCatalogue(c.Tools), pristine: true, operation: make(chan struct{}, 1)}, nil
}
