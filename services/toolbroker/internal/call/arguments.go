package call

import (
	"encoding/json"
	"errors"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
)

// arguments of a call that may be sent.
type arguments struct {
	// text is the object with its keys sorted and without white space: what is
	// sent is what was checked.
	text json.RawMessage
	// digest tells this call from one of another tool or with other arguments.
	digest string
	// unchecked says that nobody knows yet whether the tool takes them: they must
	// not be sent.
	unchecked bool
}

// parseArguments decodes strictly: a key that comes twice, or twice in different
// case, would let a check see one value and the tool another (CVE-2026-27896).
func parseArguments(toolID string, raw []byte, tool Tool) (arguments, error) {
	const op = "toolbroker.arguments"
	var object map[string]any
	err := strictjson.Unmarshal(raw, &object, strictjson.Options{MaxBytes: event.MaxArgumentsBytes, MaxDepth: event.MaxArgumentsDepth})
	if err != nil {
		detail := "arguments: not acceptable"
		if e, ok := errors.AsType[*strictjson.Error](err); ok {
			detail = "arguments" + e.Path + ": " + string(e.Kind)
		}
		return arguments{}, fault.New(fault.ToolArgumentsInvalid, op, fault.Detail(detail))
	}
	err = tool.Check(object)
	unchecked := errors.Is(err, ErrUndefined)
	if err != nil && !unchecked {
		return arguments{}, fault.New(fault.ToolArgumentsInvalid, op, fault.Detail(err.Error()))
	}
	text, err := json.Marshal(object)
	if err != nil {
		return arguments{}, fault.Wrap(err, fault.Internal, op)
	}
	return arguments{text, binding.ToolCallDigest(toolID, text), unchecked}, nil
}
