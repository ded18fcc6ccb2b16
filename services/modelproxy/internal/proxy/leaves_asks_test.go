package proxy

import "slices"

// wireAsk is a request of a wire that has every text which goes on, and the places
// of those that may be anything: what people, models and tools say.
type wireAsk struct {
	path, body string
	free       []string
}

func asks() map[string]wireAsk {
	// What else stands in a schema has a test of its own.
	const schema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"a":{"$ref":"#","description":"d","enum":["x"]}}}`
	schemaFree := func(at string) []string { return []string{at + ".properties.a.description", at + ".properties.a.enum"} }
	return map[string]wireAsk{
		"chat": {
			Path,
			`{"model":"main","stream":true,"messages":[{"role":"system","name":"n","content":"x"},
			{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},{"type":"image_url","image_url":{"url":"data:,x","detail":"low"}},
			{"type":"input_audio","input_audio":{"data":"//uQxAAA","format":"mp3"}},{"type":"file","file":{"file_data":"AA==","filename":"x"}}]},
			{"role":"assistant","content":[{"type":"refusal","refusal":"x"}],"refusal":"x","reasoning_content":"x","reasoning":"x","reasoning_text":"x","reasoning_opaque":"//8=",
			"reasoning_details":[{"type":"t","text":"x","summary":"x","data":"//8=","signature":"//8=","format":"f"}],
			"function_call":{"name":"f","arguments":"x"},"images":["AA=="],"unheard_of":{"a":[{"b":"c"}]},
			"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"x"},"extra_content":{"google":{"thought_signature":"//8="}}},{"id":"c","type":"custom","custom":{"name":"f","input":"x"}}]},
			{"role":"tool","tool_call_id":"c","content":"x"}],
			"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":` + schema + `}},
			{"type":"custom","custom":{"name":"g","description":"d","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"d"}}}}],
			"tool_choice":{"type":"function","function":{"name":"f"}},"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","schema":` + schema + `}},
			"prediction":{"type":"content","content":[{"type":"text","text":"x"}]},"stop":["x"],"user":"u","prompt_cache_key":"k","reasoning_effort":"low","verbosity":"low",
			"stream_options":{"unheard_of":"x"},"logit_bias":{"1":"x"}}`,
			slices.Concat(schemaFree("tools.function.parameters"), schemaFree("response_format.json_schema.schema"), []string{
				"messages.content", "messages.content.text", "messages.content.refusal", "messages.refusal", "messages.reasoning_content", "messages.reasoning",
				"messages.reasoning_text", "messages.reasoning_details.text", "messages.reasoning_details.summary", "messages.function_call.arguments",
				"messages.tool_calls.function.arguments", "messages.tool_calls.custom.input", "tools.function.description", "tools.custom.description",
				"response_format.json_schema.description", "prediction.content.text",
			}),
		},
		"responses": {
			pathResponses,
			`{"model":"main","stream":true,"instructions":"x","input":[{"role":"user","content":"x"},
			{"type":"message","id":"m","status":"s","role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"data:,x","detail":"low"},
			{"type":"input_file","file_data":"AA==","filename":"x"},{"type":"input_file","file_url":"data:,x"},{"type":"input_audio","input_audio":{"data":"//uQxAAA","format":"mp3"}}]},
			{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x","logprobs":[{"token":"x","top_logprobs":[{"token":"x"}]}]},{"type":"refusal","refusal":"x"}]},
			{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"x"}],"content":[{"type":"reasoning_text","text":"x"}],"encrypted_content":"//8="},
			{"type":"compaction","encrypted_content":"e"},
			{"type":"function_call","call_id":"c","name":"f","namespace":"n","arguments":"x"},{"type":"function_call_output","call_id":"c","output":"x"},
			{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"data:,x"}]},
			{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"},{"type":"custom_tool_call_output","call_id":"c","output":"x"},
			{"type":"local_shell_call","call_id":"c","action":{"type":"exec","command":["x"],"env":{"A":"x"}}},{"type":"local_shell_call_output","call_id":"c","output":"x"},
			{"type":"additional_tools","tools":[{"type":"function","name":"f","description":"d","parameters":` + schema + `}]}],
			"tools":[{"type":"function","name":"f","description":"d","parameters":` + schema + `},{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f","description":"d","parameters":` + schema + `}]},
			{"type":"custom","name":"g","description":"d","format":{"type":"grammar","syntax":"lark","definition":"d"}}],
			"tool_choice":{"type":"function","name":"f"},"include":["reasoning.encrypted_content"],"reasoning":{"effort":"low","summary":"auto"},
			"text":{"verbosity":"low","format":{"type":"json_schema","name":"n","description":"d","schema":` + schema + `}},
			"prompt_cache_key":"k","user":"u","truncation":"auto","stream_options":{"unheard_of":"x"}}`,
			slices.Concat(
				schemaFree("tools.parameters"), schemaFree("tools.tools.parameters"), schemaFree("input.tools.parameters"), schemaFree("text.format.schema"), []string{
					"instructions", "input.content", "input.content.text", "input.content.refusal", "input.content.logprobs.token", "input.content.logprobs.top_logprobs.token",
					"input.summary.text", "input.arguments", "input.output", "input.output.text", "input.input", "input.action.command", "input.action.env.A", "input.action.type",
					"input.tools.description", "tools.description", "tools.tools.description", "text.format.description",
				}),
		},
		"messages": {
			pathMessages,
			`{"model":"main","stream":true,"max_tokens":9,"system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"5m"}}],
			"messages":[{"role":"user","content":"x"},{"role":"user","content":[{"type":"text","text":"x","citations":[{"type":"char_location","cited_text":"x","document_title":"x","encrypted_index":"//8="}]},
			{"type":"image","source":{"type":"base64","media_type":"image/png","data":"//8="}},{"type":"document","title":"x","context":"x","source":{"type":"text","media_type":"text/plain","data":"x"}},
			{"type":"document","source":{"type":"content","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]}},
			{"type":"document","source":{"type":"content","content":"x"}},{"type":"search_result","source":"s","title":"x","content":[{"type":"text","text":"x"}]}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"//8="},{"type":"redacted_thinking","data":"//8="},{"type":"tool_use","id":"t","name":"f","input":{"a":["x"]}},
			{"type":"compaction","content":"x","encrypted_content":"e"}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"},{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x"},
			{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"tool_reference","tool_name":"f"}]}]}],
			"tools":[{"type":"custom","name":"f","description":"d","input_schema":` + schema + `,"input_examples":[{"a":"x"}],"cache_control":{"type":"ephemeral"}},{"type":"bash_20250124","name":"bash"}],
			"tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"adaptive"},"stop_sequences":["x"],"cache_control":{"type":"ephemeral"},
			"context_management":{"edits":[{"type":"compact_20260112","instructions":"x"}]},"output_config":{"effort":"low","format":{"type":"json_schema","schema":` + schema + `}},
			"output_format":{"type":"json_schema","schema":` + schema + `}}`,
			slices.Concat(schemaFree("tools.input_schema"), schemaFree("output_config.format.schema"), schemaFree("output_format.schema"), []string{
				"system.text", "messages.content", "messages.content.text", "messages.content.citations.cited_text", "messages.content.citations.document_title",
				"messages.content.title", "messages.content.context", "messages.content.source.data text", "messages.content.source.content",
				"messages.content.source.content.text", "messages.content.content", "messages.content.content.text", "messages.content.thinking", "messages.content.input.a",
				"tools.description", "tools.input_examples.a", "context_management.edits.instructions",
			}),
		},
		"gemini": {
			pathGemini + "m:generateContent",
			`{"contents":[{"role":"user","parts":[{"text":"x"},{"inlineData":{"mimeType":"image/png","data":"//8=","displayName":"n"}},{"inline_data":{"mime_type":"image/png","data":"AA=="}}]},
			{"role":"model","parts":[{"functionCall":{"id":"c","name":"f","args":{"a":["x"]}},"thoughtSignature":"//8="},{"text":"x","thought_signature":"//8=","partMetadata":{"a":"b"}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":{"a":"x"},"parts":[{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}},
			{"function_response":{"name":"f","response":{"a":"x"}}}]}],
			"systemInstruction":{"parts":[{"text":"x"}]},"system_instruction":{"role":"user","parts":[{"text":"x"}]},
			"tools":[{"functionDeclarations":[{"name":"f","description":"d","parameters":` + schema + `,"responseJsonSchema":` + schema + `}]},{"function_declarations":[{"name":"f","description":"d","parameters_json_schema":` + schema + `}]}],
			"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]},"retrievalConfig":{"languageCode":"en"}},"safetySettings":[{"category":"c","threshold":"t"}],
			"generationConfig":{"stopSequences":["x"],"responseMimeType":"m","responseSchema":` + schema + `,"thinkingConfig":{"thinkingLevel":"low"},"speechConfig":{"voiceConfig":{"prebuiltVoiceConfig":{"voiceName":"v"}}}}}`,
			slices.Concat(
				schemaFree("tools.functionDeclarations.parameters"), schemaFree("tools.functionDeclarations.responseJsonSchema"),
				schemaFree("tools.function_declarations.parameters_json_schema"), schemaFree("generationConfig.responseSchema"), []string{
					"contents.parts.text", "contents.parts.functionCall.args.a", "contents.parts.functionResponse.response.a", "contents.parts.function_response.response.a",
					"systemInstruction.parts.text", "system_instruction.parts.text", "tools.functionDeclarations.description", "tools.function_declarations.description",
				}),
		},
	}
}
