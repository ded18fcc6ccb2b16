// Package middleware has the portable steps around the calls of a harness: the
// middleware policy of the Harness Adapter contract. A step knows nothing of the
// adapter; it stands between the harness and the facades of its run, so that
// every adapter has all of them.
//
// The first step of a policy is the outermost: it sees a call first and its
// result last. A limit before a redaction measures what was masked already; a
// redaction before a limit masks what was cut already.
package middleware

import (
	"encoding/json"
	"fmt"
	"slices"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
)

// MaxSteps of a policy.
const MaxSteps = 16

// maxOptionsBytes of one step.
const maxOptionsBytes = 16 << 10

// Step names a step and has its options: one JSON object, or nothing.
type Step struct {
	Name    string
	Options json.RawMessage
}

// Chain is a policy that was checked. The zero value changes nothing.
type Chain struct{ steps []step }

// step wraps the tools of one run. What it counts begins anew with each run.
type step func(harness.ToolCaller) harness.ToolCaller

// builders are the steps that there are, by name.
var builders = map[string]func(json.RawMessage) (step, error){
	"tool_call_limit":   callLimit,
	"tool_result_limit": resultLimit,
	"tool_deny":         deny,
	"redact":            redactResults,
}

// New checks a policy. Errors: harness_options_invalid, which names the step.
func New(steps []Step) (Chain, error) {
	const op = "middleware.New"
	if len(steps) > MaxSteps {
		return Chain{}, fault.New(fault.HarnessOptionsInvalid, op, fault.Detail(fmt.Sprintf("middleware: at most %d", MaxSteps)))
	}
	c := Chain{steps: make([]step, len(steps))}
	for i, s := range steps {
		build, ok := builders[s.Name]
		if !ok {
			return Chain{}, fault.New(fault.HarnessOptionsInvalid, op, fault.Detail(fmt.Sprintf("middleware[%d].name: unknown", i)))
		}
		var err error
		if c.steps[i], err = build(s.Options); err != nil {
			return Chain{}, fault.Wrap(err, fault.HarnessOptionsInvalid, op, fault.Detail(fmt.Sprintf("middleware[%d].options: %v", i, err)))
		}
	}
	return c, nil
}

// Wrap puts the steps around the facades of one run.
func (c Chain) Wrap(f harness.Facades) harness.Facades {
	if f.Tools == nil {
		return f
	}
	for _, wrap := range slices.Backward(c.steps) {
		f.Tools = wrap(f.Tools)
	}
	return f
}

// options decodes the options of a step; unknown ones are refused, and absent
// ones are {}. Its errors name a place and no value.
func options(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	return strictjson.Unmarshal(raw, into, strictjson.Options{MaxBytes: maxOptionsBytes, MaxDepth: 4})
}
