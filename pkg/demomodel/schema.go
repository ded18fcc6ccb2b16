package demomodel

import (
	"encoding/json"
	"slices"
	"strings"
)

// Bounds of a value by a schema: how deep it nests, and of how many values it is
// made.
const (
	maxSchemaDepth = 16
	maxValues      = 1000
)

// node is the part of a JSON Schema that a value is made by, in JSON Schema's
// spelling or in Gemini's, which writes types in capitals.
type node struct {
	Type       any                        `json:"type"`
	Const      json.RawMessage            `json:"const"`
	Enum       []json.RawMessage          `json:"enum"`
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
	Items      json.RawMessage            `json:"items"`
	MinItems   int                        `json:"minItems"`
	Minimum    json.Number                `json:"minimum"`
	AnyOf      []json.RawMessage          `json:"anyOf"`
	OneOf      []json.RawMessage          `json:"oneOf"`
}

// instance is a JSON text by a schema: the first choice everywhere, texts that
// say nothing, and of an object what it has to have. What a schema demands
// beyond that is not looked at.
func instance(schema json.RawMessage) string {
	data, err := json.Marshal((&maker{left: maxValues}).example(schema, 0))
	if err != nil { // made of plain values and of JSON that was decoded
		return "{}"
	}
	return string(data)
}

// maker makes one value.
type maker struct{ left int }

func (m *maker) example(schema json.RawMessage, depth int) any {
	var n node
	if m.left--; m.left < 0 || depth > maxSchemaDepth || json.Unmarshal(schema, &n) != nil {
		return nil
	}
	switch {
	case len(n.Const) > 0:
		return n.Const
	case len(n.Enum) > 0:
		return n.Enum[0]
	case len(n.AnyOf) > 0:
		return m.example(n.AnyOf[0], depth+1)
	case len(n.OneOf) > 0:
		return m.example(n.OneOf[0], depth+1)
	}
	return m.value(n, depth)
}

func (m *maker) value(n node, depth int) any {
	switch n.kind() {
	case "string":
		return sideTitle
	case "integer", "number":
		if n.Minimum != "" {
			return n.Minimum
		}
		return 1
	case "boolean":
		return false
	case "array":
		list := []any{}
		for range min(n.MinItems, 4) {
			list = append(list, m.example(n.Items, depth+1))
		}
		return list
	case "null":
		return nil
	default:
		object := make(map[string]any, len(n.Required))
		for name, schema := range n.Properties {
			if slices.Contains(n.Required, name) {
				object[name] = m.example(schema, depth+1)
			}
		}
		return object
	}
}

// kind is the type of a value; where several may be, the first that is not null.
func (n node) kind() string {
	types, _ := n.Type.([]any)
	if one, ok := n.Type.(string); ok {
		types = []any{one}
	}
	for _, t := range types {
		if name, ok := t.(string); ok && !strings.EqualFold(name, "null") {
			return strings.ToLower(name)
		}
	}
	if len(types) > 0 {
		return "null"
	}
	return ""
}
