package proxy

import (
	"encoding/json"
	"slices"
)

// responsesRules are those of OpenAI Responses.
func responsesRules() rules {
	return rules{
		passed: set(
			"input", "instructions", "model", "stream", "stream_options",
			"include", "max_output_tokens", "max_tool_calls", "parallel_tool_calls", "prompt_cache_key",
			"reasoning", "store", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p",
			"truncation", "user",
		),
		ignored: set("client_metadata", "metadata", "service_tier", "safety_identifier"),
		stored:  []string{"previous_response_id", "conversation", "prompt"},
		own:     func(t object) bool { return responsesTool(t, 0) },
		check:   (*request).checkResponses,
		shape:   responsesShape(),
	}
}

func responsesShape() shape {
	l := map[string]leaf{
		"part.image_url":          leafURL,
		"part.file_url":           leafURL,
		"part.file_data":          leafBytes,
		"part.input_audio.data":   leafBytes,
		"input.encrypted_content": leafToken,
	}
	places(leafText, l,
		"input", "instructions", "part", "part.text", "part.refusal", "part.logprobs.token", "part.logprobs.top_logprobs.token",
		"tools.description", "text.format.description",
	)
	places(leafTool, l, "input.arguments", "input.input", "input.action")
	places(leafSchema, l, "tools.parameters", "text.format.schema")
	return shape{leaves: l, same: map[string]string{
		"input.content": "part", "input.output": "part", "input.summary": "part", "input.tools": "tools", "tools.tools": "tools",
	}}
}

// responsesTool tells a function, or a namespace that holds nothing else.
func responsesTool(t object, depth int) bool {
	switch t.text("type") {
	case "function", "custom", "local_shell":
		return true
	case "namespace":
		tools, ok := blocksOf(t["tools"])
		return ok && depth == 0 && !slices.ContainsFunc(tools, func(t object) bool { return t.hasVariant() || !responsesTool(t, depth+1) })
	default:
		return false
	}
}

// inputItems are the items of an input that hold what they say.
var inputItems = set(
	"", "message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
	"local_shell_call", "local_shell_call_output", "reasoning", "compaction", "additional_tools",
)

// inputParts are the parts of a message that hold what they say.
var inputParts = set("input_text", "output_text", "refusal", "input_image", "input_file", "input_audio", "reasoning_text", "summary_text")

// checkResponses refuses what the endpoint would fetch, and has it keep nothing:
// it does unless it is told otherwise.
func (r *request) checkResponses(a admission) error {
	if err := r.refuseStore(a); err != nil {
		return err
	}
	if !a.further["store"] {
		r.fields["store"] = json.RawMessage("false")
	}
	input := r.fields["input"]
	var text string
	if json.Unmarshal(input, &text) == nil && text != "" {
		return nil
	}
	items, ok := blocksOf(input)
	if !ok || len(items) == 0 {
		return invalid("input: a text, or a list of at least one item")
	}
	changed := false
	for _, item := range items {
		if err := checkItem(item, a); err != nil {
			return err
		}
		if item.text("type") == "additional_tools" {
			tools, err := ownTools(item["tools"], r.to.wire.rules().own, a)
			if err != nil {
				return err
			}
			changed = changed || string(tools) != string(item["tools"])
			item["tools"] = tools
		}
	}
	if !changed {
		return nil
	}
	var err error
	r.fields["input"], err = encode(items)
	return err
}

func checkItem(item object, a admission) error {
	kind := item.text("type")
	if kind == "item_reference" || !a.drop && !inputItems[kind] {
		return invalid("input: messages, and calls and results of functions, that are in the request itself")
	}
	for _, name := range []string{"content", "output"} {
		if raw := item[name]; isList(raw) {
			parts, ok := blocksOf(raw)
			known := func(p object) bool { return a.drop || inputParts[p.text("type")] }
			if !ok || slices.ContainsFunc(parts, func(p object) bool { return !known(p) }) {
				return invalid("input." + name + ": texts, and images, sounds and files that are in the request itself")
			}
		}
	}
	for key, raw := range item {
		// Schemas name what they like.
		if kind == "additional_tools" && key == "tools" {
			continue
		}
		if isAddress(key) || isVariant(key) || elsewhere(raw, nothing) {
			return invalid("input: names something that is not in the request itself")
		}
	}
	return nil
}

// nothing is opaque where arguments and results are texts.
func nothing(map[string]any, string) bool { return false }
