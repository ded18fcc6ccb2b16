package proxy

import (
	"encoding/json"
	"slices"
	"strings"
)

// messagesRules are those of Anthropic Messages.
func messagesRules() rules {
	return rules{
		passed: set(
			"messages", "model", "stream", "system", "max_tokens",
			"cache_control", "context_management", "output_config", "output_format", "stop_sequences", "temperature",
			"thinking", "tool_choice", "tools", "top_k", "top_p",
		),
		ignored: set("metadata", "service_tier", "inference_geo", "betas"),
		stored:  []string{"container"},
		own:     messagesTool,
		check:   (*request).checkMessages,
		shape:   messagesShape(),
	}
}

func messagesShape() shape {
	l := map[string]leaf{"block.source.url": leafURL, "block.source.data": leafSource}
	places(leafText, l,
		"block", "block.text", "block.thinking", "block.title", "block.context",
		"block.citations.cited_text", "block.citations.document_title", "block.citations.title",
		"tools.description", "context_management.edits.instructions",
	)
	places(leafTool, l, "block.input", "tools.input_examples")
	places(leafToken, l, "block.signature", "block.data", "block.encrypted_content", "block.citations.encrypted_index")
	places(leafSchema, l, "tools.input_schema", "output_config.format.schema", "output_format.schema")
	return shape{leaves: l, same: map[string]string{
		"messages.content": "block", "system": "block", "block.content": "block", "block.source.content": "block",
	}}
}

// messagesTool tells a tool that the client runs: its own, and those of
// Anthropic that are only described there.
func messagesTool(t object) bool {
	kind := t.text("type")
	if _, typed := t["type"]; !typed || kind == "custom" {
		return true
	}
	return slices.ContainsFunc([]string{"bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_"}, func(prefix string) bool {
		return strings.HasPrefix(kind, prefix)
	})
}

// contentBlocks are the blocks that hold what they say.
var contentBlocks = set(
	"text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking", "search_result", "tool_reference", "compaction",
)

// checkMessages refuses what the endpoint would fetch.
func (r *request) checkMessages(a admission) error {
	messages, ok := blocksOf(r.fields["messages"])
	if !ok || len(messages) == 0 {
		return invalid("messages: a list of at least one message")
	}
	for _, m := range messages {
		if !m.only("role", "content") {
			return invalid("messages: role and content, and nothing else")
		}
		if err := checkBlocks(m["content"], a); err != nil {
			return err
		}
	}
	return checkBlocks(r.fields["system"], a)
}

// checkBlocks looks at content: a text, or a list of blocks.
func checkBlocks(content json.RawMessage, a admission) error {
	if !isList(content) {
		var text *string
		if len(content) > 0 && json.Unmarshal(content, &text) != nil {
			return invalid("content: a text or a list of blocks")
		}
		return nil
	}
	blocks, ok := blocksOf(content)
	known := func(b object) bool { return a.drop || contentBlocks[b.text("type")] }
	if !ok || slices.ContainsFunc(blocks, func(b object) bool { return !known(b) }) || elsewhere(content, toolUse) {
		return invalid("content: texts, and images and documents that are in the request itself")
	}
	return nil
}

// toolUse tells the arguments of a call.
func toolUse(o map[string]any, key string) bool { return key == "input" && o["type"] == "tool_use" }
