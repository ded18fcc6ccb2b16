package proxy

import (
	"encoding/json"
	"strings"
)

// chatRules are those of OpenAI Chat Completions.
func chatRules() rules {
	return rules{
		passed: set(
			"messages", "model", "stream", "stream_options",
			"frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens",
			"max_tokens", "n", "parallel_tool_calls", "prediction", "presence_penalty",
			"prompt_cache_key", "reasoning_effort", "response_format", "seed", "stop",
			"store", "temperature", "tool_choice", "tools", "top_logprobs",
			"top_p", "user", "verbosity",
		),
		own:   chatTool,
		check: (*request).checkChat,
		shape: chatShape(),
	}
}

func chatShape() shape {
	l := map[string]leaf{
		"messages.content.image_url.url":    leafURL,
		"messages.content.input_audio.data": leafBytes,
		"messages.content.file.file_data":   leafBytes,
	}
	places(leafText, l,
		"messages.content", "messages.content.text", "messages.content.refusal", "messages.refusal",
		"messages.reasoning", "messages.reasoning_content", "messages.reasoning_text",
		"messages.reasoning_details.text", "messages.reasoning_details.summary",
		"prediction.content", "prediction.content.text",
		"tools.function.description", "tools.custom.description", "response_format.json_schema.description",
	)
	places(leafTool, l, "messages.tool_calls.function.arguments", "messages.tool_calls.custom.input", "messages.function_call.arguments")
	places(leafToken, l,
		"messages.reasoning_opaque", "messages.reasoning_details.data", "messages.reasoning_details.signature",
		"messages.tool_calls.extra_content.google.thought_signature",
	)
	places(leafSchema, l, "tools.function.parameters", "response_format.json_schema.schema")
	return shape{leaves: l}
}

func chatTool(t object) bool {
	kind := t.text("type")
	return (kind == "function" || kind == "custom") && t.only("type", "function", "custom", "cache_control")
}

// checkChat refuses content that the endpoint would fetch: a sandbox without a
// network could send data out in the address.
func (r *request) checkChat(a admission) error {
	if err := r.refuseStore(a); err != nil {
		return err
	}
	var messages []object
	if json.Unmarshal(r.fields["messages"], &messages) != nil || len(messages) == 0 {
		return invalid("messages: a list of at least one message")
	}
	for _, m := range messages {
		for key := range m {
			if key != "content" && strings.EqualFold(key, "content") {
				return invalid("messages.content: in lower case")
			}
		}
		content := m["content"]
		if len(content) == 0 || content[0] != '[' {
			continue // a text, or none
		}
		var parts []object
		if json.Unmarshal(content, &parts) != nil {
			return invalid("messages.content: a text or a list of parts")
		}
		for _, p := range parts {
			if !inline(p) {
				return invalid("messages.content: texts, and images, sounds and files that are in the request itself")
			}
		}
	}
	return nil
}

// inline reports whether a part of a message brings all that it shows. Whatever
// its type says, no key of it may name something elsewhere: endpoints differ in
// what they look at first. What stands under the keys is looked at with all other
// texts.
func inline(p object) bool {
	switch p.text("type") {
	case "text", "refusal", "image_url", "input_audio", "file":
	default:
		return false
	}
	if !p.only("type", "text", "refusal", "image_url", "input_audio", "file", "cache_control") {
		return false
	}
	if raw, ok := p["image_url"]; ok && !inlineImage(raw) {
		return false
	}
	if raw, ok := p["file"]; ok {
		// A file_id names what anybody may have stored under the same key.
		var file object
		return json.Unmarshal(raw, &file) == nil && file.only("file_data", "filename")
	}
	return true
}

func inlineImage(raw json.RawMessage) bool {
	var image object
	if json.Unmarshal(raw, &image) != nil || !image.only("url", "detail") {
		return false
	}
	return strings.HasPrefix(image.text("url"), "data:")
}
