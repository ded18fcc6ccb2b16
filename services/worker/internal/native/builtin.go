package native

import (
	"encoding/json"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
)

// builtin are the tools that the harness has itself and that this binding may
// use. Each is offered in those runs in which it can do something.
func (r *runtime) builtin() []*tool {
	var all []*tool
	if r.construction.Interrupts.FormInput {
		all = append(all, askUser())
	}
	if len(r.construction.MemoryScopes) > 0 {
		all = append(all, r.memoryTools()...)
	}
	return append(all, fileTools()...)
}

// into reads the arguments of a built-in tool.
func into(raw json.RawMessage, v any) error {
	err := strictjson.Unmarshal(raw, v, strictjson.Options{MaxBytes: event.MaxArgumentsBytes, RequireFields: true})
	if err != nil {
		return fault.Wrap(err, fault.ToolArgumentsInvalid, "native.arguments", fault.Detail("arguments: "+err.Error()))
	}
	return nil
}

func badArgument(rule string) error {
	return fault.New(fault.ToolArgumentsInvalid, "native.arguments", fault.Detail("arguments."+rule))
}
