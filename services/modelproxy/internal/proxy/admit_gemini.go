package proxy

import "slices"

// geminiRules are those of Gemini, which takes its fields in two spellings.
func geminiRules() rules {
	return rules{
		passed: set(
			"contents", "systemInstruction", "system_instruction", "tools", "toolConfig", "tool_config",
			"generationConfig", "generation_config", "safetySettings", "safety_settings",
		),
		ignored: set("labels", "model"),
		stored:  []string{"cachedContent", "cached_content"},
		own:     func(t object) bool { return t.only("functionDeclarations", "function_declarations") },
		check:   (*request).checkGemini,
		shape:   geminiShape(),
	}
}

func geminiShape() shape {
	l := map[string]leaf{
		"part.inlinedata.data":                   leafBytes,
		"part.filedata.fileuri":                  leafURL,
		"part.thoughtsignature":                  leafToken,
		"part.text":                              leafText,
		"tools.functiondeclarations.description": leafText,
	}
	places(leafTool, l, "part.functioncall.args", "part.functionresponse.response")
	places(leafSchema, l,
		"tools.functiondeclarations.parameters", "tools.functiondeclarations.parametersjsonschema",
		"tools.functiondeclarations.response", "tools.functiondeclarations.responsejsonschema",
		"generationconfig.responseschema", "generationconfig.responsejsonschema",
	)
	return shape{leaves: l, fold: true, same: map[string]string{
		"contents.parts": "part", "systeminstruction.parts": "part", "part.functionresponse.parts": "part",
	}}
}

// contentParts are the keys of parts that hold what they say.
var contentParts = set(
	"text", "thought", "thoughtSignature", "thought_signature", "inlineData", "inline_data",
	"functionCall", "function_call", "functionResponse", "function_response", "partMetadata", "part_metadata",
)

// checkGemini refuses what the endpoint would fetch.
func (r *request) checkGemini(a admission) error {
	contents, ok := blocksOf(r.fields["contents"])
	if !ok || len(contents) == 0 {
		return invalid("contents: a list of at least one content")
	}
	for _, name := range []string{"systemInstruction", "system_instruction"} {
		if raw, ok := r.fields[name]; ok {
			one, ok := blocksOf(append(append([]byte("["), raw...), ']'))
			if !ok {
				return invalid(name + ": a content")
			}
			contents = append(contents, one...)
		}
	}
	for _, c := range contents {
		if !c.only("role", "parts") {
			return invalid("contents: role and parts, and nothing else")
		}
		parts, ok := blocksOf(c["parts"])
		known := func(p object) bool {
			for key := range p {
				if !contentParts[key] {
					return false
				}
			}
			return true
		}
		unknown := !a.drop && slices.ContainsFunc(parts, func(p object) bool { return !known(p) })
		if c["parts"] != nil && (!ok || unknown) || c["parts"] != nil && elsewhere(c["parts"], toolData) {
			return invalid("contents.parts: texts, data that are in the request itself, and calls and results of functions")
		}
	}
	return nil
}

// toolData tells the arguments of a call and what it returned.
func toolData(_ map[string]any, key string) bool { return key == "args" || key == "response" }
