package toolschema

import (
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
)

// CheckText checks arguments that are JSON text: one strict object, within the
// bounds of a call, that fits. Every error is an *ArgumentError.
func (s *Schema) CheckText(arguments []byte) error {
	var args map[string]any
	o := strictjson.Options{MaxBytes: event.MaxArgumentsBytes, MaxDepth: event.MaxArgumentsDepth}
	if strictjson.Unmarshal(arguments, &args, o) != nil || args == nil {
		return &ArgumentError{Rule: "one JSON object"}
	}
	return s.Check(args)
}
