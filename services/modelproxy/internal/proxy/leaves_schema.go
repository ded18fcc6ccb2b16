package proxy

import (
	"slices"
	"strings"
)

// metaSchemas are the names of the dialects of JSON schema, which most schemas
// begin with. Nobody fetches them, and nothing can be said with them.
var metaSchemas = set(
	"http://json-schema.org/schema#", "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema#",
	"http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema#",
	"https://json-schema.org/draft-07/schema", "https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema",
)

// Words of a schema: said are those under which stands what somebody says, shown
// those with values of any form, and named those with schemas by names of their own.
var (
	said  = set("title", "description", "$comment", "pattern")
	shown = set("default", "const", "enum", "example", "examples")
	named = set("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
)

// schemaLeadsOut reports whether a schema refers to something elsewhere. names says
// that the keys are not words of a schema.
func schemaLeadsOut(v any, names bool) bool {
	switch v := v.(type) {
	case string:
		return address(v)
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return schemaLeadsOut(one, false) })
	case map[string]any:
		for key, value := range v {
			_, isText := value.(string)
			switch {
			case !names && isText && said[key]:
			case !names && shown[key]:
				if refersOut(value) {
					return true
				}
			case isMetaSchema(key, value):
			case schemaLeadsOut(value, !names && named[key]):
				return true
			}
		}
	}
	return false
}

// refersOut looks at values that are shown: a reference can point at one, and make a
// schema of it.
func refersOut(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, refersOut)
	case map[string]any:
		for key, value := range v {
			text, _ := value.(string)
			if strings.HasPrefix(key, "$") && address(text) && !isMetaSchema(key, value) || refersOut(value) {
				return true
			}
		}
	}
	return false
}

func isMetaSchema(key string, value any) bool {
	text, _ := value.(string)
	return key == "$schema" && metaSchemas[text]
}
