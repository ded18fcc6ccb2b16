package native

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/native/model"
)

// Options of the adapter; unknown ones are refused.
type Options struct {
	// Temperature of the model, 0 to 2; absent leaves it to the model.
	Temperature *float64 `json:"temperature,omitempty"`
	// ParallelToolCalls is how many calls of one answer run at once, 1 to 16.
	ParallelToolCalls int `json:"parallel_tool_calls,omitempty"`
	// ReasoningEffort is low, medium or high; absent leaves it to the model.
	ReasoningEffort model.Effort `json:"reasoning_effort,omitempty"`
	// ModelRetries is how often a throttled model call is made again, 0 to 8.
	ModelRetries int `json:"model_retries,omitempty"`
	// CompactAtPercent of the model's context older turns are replaced by a
	// summary, 10 to 95.
	CompactAtPercent int `json:"compact_at_percent,omitempty"`
	// Subagents that the agent may delegate to, at most 16.
	Subagents []Subagent `json:"subagents,omitempty"`
}

// Subagent is an agent that runs within the run of another, with a part of its
// tools.
type Subagent struct {
	// Name is ^[a-z][a-z0-9_]{0,31}$.
	Name string `json:"name"`
	// Description tells the delegating model what the subagent is for.
	Description string `json:"description"`
	// Prompt is the subagent's system prompt.
	Prompt string `json:"prompt"`
	// Tools are ids of the agent's tools, of built-in ones other than
	// cofferdam.ask_user, and of subagents (cofferdam.subagent_NAME) to delegate to
	// in turn: at most two deep.
	Tools []string `json:"tools"`
}

const (
	defaultParallel  = 4
	maxParallel      = 16
	defaultRetries   = 4
	maxRetries       = 8
	defaultCompactAt = 80
	minCompactAt     = 10
	maxCompactAt     = 95
	maxSubagents     = 16
	maxSubagentTools = 256
	maxDescription   = 4 << 10
	maxPrompt        = 32 << 10
)

var subagentName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

const optionsSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "parallel_tool_calls": {"type": "integer", "minimum": 1, "maximum": 16, "default": 4},
    "reasoning_effort": {"enum": ["low", "medium", "high"]},
    "model_retries": {"type": "integer", "minimum": 0, "maximum": 8, "default": 4},
    "compact_at_percent": {"type": "integer", "minimum": 10, "maximum": 95, "default": 80},
    "subagents": {
      "type": "array",
      "maxItems": 16,
      "items": {
        "type": "object",
        "properties": {
          "name": {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,31}$"},
          "description": {"type": "string", "minLength": 1, "maxLength": 4096},
          "prompt": {"type": "string", "minLength": 1, "maxLength": 32768},
          "tools": {"type": "array", "maxItems": 256, "items": {"type": "string", "minLength": 1}}
        },
        "required": ["name", "description", "prompt", "tools"],
        "additionalProperties": false
      }
    }
  },
  "additionalProperties": false
}`

func parseOptions(raw json.RawMessage) (Options, error) {
	o := Options{ParallelToolCalls: defaultParallel, ModelRetries: defaultRetries, CompactAtPercent: defaultCompactAt}
	if len(raw) > 0 {
		if err := strictjson.Unmarshal(raw, &o, strictjson.Options{RequireFields: true}); err != nil {
			return o, fault.Wrap(err, fault.HarnessOptionsInvalid, "native.options", fault.Detail("harness_options: "+err.Error()))
		}
	}
	for _, r := range []struct {
		name             string
		value, low, high int
	}{
		{"parallel_tool_calls", o.ParallelToolCalls, 1, maxParallel},
		{"model_retries", o.ModelRetries, 0, maxRetries},
		{"compact_at_percent", o.CompactAtPercent, minCompactAt, maxCompactAt},
	} {
		if r.value < r.low || r.value > r.high {
			return o, badOption(r.name, fmt.Sprintf("%d to %d", r.low, r.high))
		}
	}
	switch {
	case o.Temperature != nil && (*o.Temperature < 0 || *o.Temperature > 2):
		return o, badOption("temperature", "0 to 2")
	case !slices.Contains([]model.Effort{"", "low", "medium", "high"}, o.ReasoningEffort):
		return o, badOption("reasoning_effort", "low, medium or high")
	case len(o.Subagents) > maxSubagents:
		return o, badOption("subagents", fmt.Sprintf("at most %d", maxSubagents))
	}
	return o, o.checkSubagents()
}

func (o Options) checkSubagents() error {
	for i, s := range o.Subagents {
		at := fmt.Sprintf("subagents[%d]", i)
		switch {
		case !subagentName.MatchString(s.Name):
			return badOption(at+".name", "1 to 32 characters of [a-z0-9_], a letter first")
		case slices.ContainsFunc(o.Subagents[:i], func(b Subagent) bool { return b.Name == s.Name }):
			return badOption(at+".name", "two subagents have the same name")
		case s.Description == "" || len(s.Description) > maxDescription:
			return badOption(at+".description", fmt.Sprintf("1 to %d bytes", maxDescription))
		case s.Prompt == "" || len(s.Prompt) > maxPrompt:
			return badOption(at+".prompt", fmt.Sprintf("1 to %d bytes", maxPrompt))
		case len(s.Tools) > maxSubagentTools:
			return badOption(at+".tools", fmt.Sprintf("at most %d", maxSubagentTools))
		}
	}
	return nil
}

func badOption(name, rule string) error {
	return fault.New(fault.HarnessOptionsInvalid, "native.options", fault.Detail("harness_options."+name+": "+rule))
}
