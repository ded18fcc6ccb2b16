package proxy

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"cofferdam.dev/pkg/fault"
)

// passed are the fields of the wire that only shape an answer. What is missing
// here makes an endpoint act: search, fetch, store, speak, fall back to other
// models. An alias can allow more ([Alias.Fields]).
var passed = map[string]bool{
	"messages": true, "model": true, "stream": true, "stream_options": true,
	"frequency_penalty": true, "logit_bias": true, "logprobs": true, "max_completion_tokens": true,
	"max_tokens": true, "n": true, "parallel_tool_calls": true, "prediction": true, "presence_penalty": true,
	"prompt_cache_key": true, "reasoning_effort": true, "response_format": true, "seed": true, "stop": true,
	"store": true, "temperature": true, "tool_choice": true, "tools": true, "top_logprobs": true,
	"top_p": true, "user": true, "verbosity": true,
}

// fieldName is what a field has to look like to be named in an error.
var fieldName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// admit checks that the request asks for its alias and for nothing beyond it,
// and finds out whether it streams.
func (r *request) admit(alias string, further map[string]bool) error {
	for name := range r.fields {
		switch {
		case passed[name], further[name]:
		case fieldName.MatchString(name):
			return invalid(name + ": not a field that this alias passes on")
		default:
			return invalid("body: has a field that this alias does not pass on")
		}
	}
	var model string
	if json.Unmarshal(r.fields["model"], &model) != nil {
		return invalid("model: the alias that the capability names")
	}
	if model != alias {
		return fault.New(fault.CapabilityScope, "proxy.admit", fault.Detail("model: another one than the capability names"))
	}
	if err := r.flag("stream", &r.stream); err != nil {
		return err
	}
	var store bool
	if err := r.flag("store", &store); err != nil {
		return err
	}
	if store && !further["store"] {
		return invalid("store: false")
	}
	if err := r.checkTools(); err != nil {
		return err
	}
	return r.checkMessages()
}

// flag reads a field that is a boolean, null or absent.
func (r *request) flag(name string, to *bool) error {
	raw, ok := r.fields[name]
	if ok && json.Unmarshal(raw, to) != nil {
		return invalid(name + ": a boolean")
	}
	return nil
}

// checkTools refuses tools that the endpoint would run by itself.
func (r *request) checkTools() error {
	raw, ok := r.fields["tools"]
	if !ok {
		return nil
	}
	var tools []object
	if json.Unmarshal(raw, &tools) != nil {
		return invalid("tools: a list of tools")
	}
	for _, t := range tools {
		kind := t.text("type")
		if kind != "function" && kind != "custom" || !t.only("type", "function", "custom", "cache_control") {
			return invalid("tools: only functions, which ToolBroker carries out")
		}
	}
	return nil
}

// checkMessages refuses content that the endpoint would fetch: a sandbox
// without a network could send data out in the address.
func (r *request) checkMessages() error {
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
// what they look at first.
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

// object is a JSON object by its exact keys. A struct would take keys of
// another case for its own, and so read something else than the endpoint does.
type object map[string]json.RawMessage

// text is the string under key, or "" where there is none.
func (o object) text(key string) (text string) {
	if json.Unmarshal(o[key], &text) != nil {
		return ""
	}
	return text
}

// only reports whether o has no other keys.
func (o object) only(keys ...string) bool {
	for key := range o {
		if !slices.Contains(keys, key) {
			return false
		}
	}
	return true
}
