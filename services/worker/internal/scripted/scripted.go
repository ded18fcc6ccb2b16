// Package scripted is the adapter of harnesses that do exactly what they are
// told: for tests, certification and load. A turn's message is a script, a JSON
// list of steps; it emits events, calls tools, keeps state, asks people, breaks
// the rules, and, where the agent's options say hostile, attacks what it runs in.
//
// It is code of the worker itself, and a worker has it only where it was asked
// for.
package scripted

import (
	"context"
	"encoding/json"
	"sync"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
)

// ID of the adapter, and its version.
const (
	ID      = "scripted"
	Version = "1.0.0"
)

// Options of the adapter; unknown ones are refused.
type Options struct {
	// Script is played for a message that is none.
	Script json.RawMessage `json:"script,omitempty"`
	// Hostile allows probes and what can end the worker.
	Hostile bool `json:"hostile,omitempty"`
}

const optionsSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "script": {"type": "array", "items": {"type": "object", "required": ["do"]}},
    "hostile": {"type": "boolean"}
  },
  "additionalProperties": false
}`

// Adapter is the scripted adapter.
type Adapter struct{}

// New makes the adapter.
func New() *Adapter { return &Adapter{} }

// Descriptor of the adapter.
func (*Adapter) Descriptor() harness.Descriptor {
	return harness.Descriptor{
		ID: ID, AdapterVersion: Version, ExecutionMode: "sandbox_pod", OptionsSchema: json.RawMessage(optionsSchema), Capabilities: capabilities(),
	}
}

// Health has nothing to ask: the adapter is code of the worker itself.
func (*Adapter) Health(ctx context.Context) error { return ctx.Err() }

// Initialize checks the options, and the script that stands in them.
func (*Adapter) Initialize(_ context.Context, c harness.Construction) (harness.Runtime, error) {
	const op = "scripted.Initialize"
	rt := &runtime{construction: c, released: make(chan struct{})}
	if len(c.Options) > 0 {
		o := strictjson.Options{MaxBytes: maxScript, MaxDepth: maxDepth + 1}
		if err := strictjson.Unmarshal(c.Options, &rt.options, o); err != nil {
			return nil, fault.Wrap(err, fault.HarnessOptionsInvalid, op, fault.Detail("harness_options: "+err.Error()))
		}
	}
	if len(rt.options.Script) > 0 {
		var err error
		if rt.script, err = parse(rt.options.Script, rt.options.Hostile); err != nil {
			return nil, fault.Wrap(err, fault.HarnessOptionsInvalid, op, fault.Detail("harness_options.script: "+err.Error()))
		}
	}
	return rt, nil
}

// runtime holds what bind gave, and what outlives a run on purpose.
type runtime struct {
	construction harness.Construction
	options      Options
	script       script
	// late are goroutines that go on after their run; released ends them, and
	// steps that hang.
	late     sync.WaitGroup
	releases sync.Once
	released chan struct{}
}

// Cleanup releases what hangs, and waits for it.
func (r *runtime) Cleanup(ctx context.Context) error {
	r.releases.Do(func() { close(r.released) })
	ended := make(chan struct{})
	go func() { // ends with the goroutines, which released ends
		r.late.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err(), "scripted.Cleanup")
	}
}
