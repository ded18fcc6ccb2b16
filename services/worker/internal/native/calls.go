package native

import (
	"bytes"
	"encoding/json"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/native/model"
)

const (
	// maxCallsInAnswer bounds what one answer of a model may call.
	maxCallsInAnswer = 64
	// maxName is what providers take as the name of a tool.
	maxName = 64
	// unnamed stands for a name of which nothing may be repeated.
	unnamed = "unnamed"
)

// toolCall is a call that a model made.
type toolCall struct {
	model.Part

	// refused says that the arguments were not one acceptable JSON object.
	refused bool
	// madeUp says that Name is not what the model said, which no tool has.
	madeUp bool
}

// partialCall is a call whose pieces are still coming.
type partialCall struct {
	index int64
	id    string
	name  string
	args  strings.Builder
}

// whole is the call under an id of its own: a model may use one twice.
func (c *partialCall) whole(id string) toolCall {
	args, ok := objectOf(c.args.String())
	name := repeatable(c.name)
	return toolCall{
		Part:    model.Part{Kind: model.Call, CallID: id, Name: name, Arguments: json.RawMessage(args)},
		refused: !ok, madeUp: name != c.name,
	}
}

// objectOf gives arguments if they are one JSON object that may stand in an event
// and be sent to the broker, else an empty one. No text at all is an object
// without keys.
func objectOf(text string) (event.Object, bool) {
	raw := []byte(strings.TrimSpace(text))
	if len(raw) == 0 {
		return event.EmptyObject, true
	}
	o := strictjson.Options{MaxBytes: event.MaxArgumentsBytes, MaxDepth: event.MaxArgumentsDepth}
	if raw[0] != '{' || strictjson.Check(raw, o) != nil {
		return event.EmptyObject, false
	}
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return event.EmptyObject, false
	}
	return event.Object(compact.String()), true
}

// repeatable makes of a name one that a provider takes back: a conversation with
// another one in it would be refused for ever.
func repeatable(name string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		default:
			return -1
		}
	}, name)
	clean = event.Truncate(clean, maxName)
	if clean == "" {
		return unnamed
	}
	return clean
}
