package native

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
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
	call

	// number of the call in its run, from 1.
	number int
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

// collect adds a piece of a call. Pieces of one call have one index; a second id
// under it begins another call, for some providers give every call the index 0.
func (w *writer) collect(d openai.ChatCompletionChunkChoiceDeltaToolCall) error {
	c := w.callAt(d.Index)
	if c == nil || d.ID != "" && c.id != "" && d.ID != c.id {
		if len(w.calls) == maxCallsInAnswer {
			return fault.New(fault.ModelFailed, "native.collect", fault.Detail("the model calls more tools at once than it may"))
		}
		c = &partialCall{index: d.Index}
		w.calls = append(w.calls, c)
	}
	if d.ID != "" {
		c.id = d.ID
	}
	c.name += d.Function.Name
	c.args.WriteString(d.Function.Arguments)
	w.argumentBytes += len(d.Function.Name) + len(d.Function.Arguments)
	return nil
}

// callAt is the last call of an index, or nil.
func (w *writer) callAt(index int64) *partialCall {
	for _, c := range slices.Backward(w.calls) {
		if c.index == index {
			return c
		}
	}
	return nil
}

// whole is the call under an id of its own: a model may use one twice.
func (c *partialCall) whole(number int, id string) toolCall {
	args, ok := objectOf(c.args.String())
	name := repeatable(c.name)
	return toolCall{
		call:   call{ID: id, Name: name, Arguments: json.RawMessage(args)},
		number: number, refused: !ok, madeUp: name != c.name,
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
