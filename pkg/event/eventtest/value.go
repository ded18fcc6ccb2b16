package eventtest

import (
	"encoding/json"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"cofferdam.dev/pkg/event"
)

// Event is any event that event.Validate accepts.
func Event() *rapid.Generator[event.Event] {
	return rapid.Custom(func(t *rapid.T) event.Event {
		return event.Event{
			RunID: id().Draw(t, "run_id"), ConversationID: id().Draw(t, "conversation_id"),
			Sequence:  rapid.Uint64Max(event.MaxRunEvents-1).Draw(t, "sequence"),
			Timestamp: moment(t),
			Namespace: namespace(t),
			Data:      Payload().Draw(t, "data"),
		}
	})
}

// moment is a time of RFC 3339 in UTC, with nanoseconds.
func moment(t *rapid.T) time.Time {
	return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC()
}

func namespace(t *rapid.T) []string {
	path := rapid.SliceOfN(id(), 0, event.MaxNamespaceDepth).Draw(t, "namespace")
	if len(path) == 0 {
		return nil
	}
	return path
}

func id() *rapid.Generator[string] { return rapid.StringMatching(`[A-Za-z0-9._:-]{1,128}`) }

func optionalID() *rapid.Generator[string] { return rapid.StringMatching(`([A-Za-z0-9._:-]{1,128})?`) }

func toolID() *rapid.Generator[string] {
	return rapid.StringMatching(`[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9._/-]{1,128}`)
}

// text is any text that may stand in an event, of at most that many bytes and
// not empty.
func text(most int) *rapid.Generator[string] {
	return rapid.Map(rapid.StringN(1, min(60, most/4), most), func(s string) string {
		return event.Truncate("é<&>\u2028\"\\\t"+event.SanitizeText(s), most)
	})
}

func optionalText(most int) *rapid.Generator[string] {
	return rapid.OneOf(rapid.Just(""), text(most))
}

func number() *rapid.Generator[*uint64] {
	return rapid.Ptr(rapid.Uint64Max(event.MaxInteger), true)
}

// object is the JSON text of an object that nests at most depth deep.
func object(depth int) *rapid.Generator[event.Object] {
	return rapid.Custom(func(t *rapid.T) event.Object {
		members := make(map[string]any)
		for i := range rapid.IntRange(0, 4).Draw(t, "members") {
			members["key"+strconv.Itoa(i)] = anything(t, depth-1)
		}
		return event.Object(marshal(t, members))
	})
}

// value is the JSON text of any value.
func value(depth int) *rapid.Generator[event.Value] {
	return rapid.Custom(func(t *rapid.T) event.Value { return event.Value(marshal(t, anything(t, depth))) })
}

func anything(t *rapid.T, depth int) any {
	kinds := 5
	if depth > 0 {
		kinds = 7
	}
	switch rapid.IntRange(1, kinds).Draw(t, "kind") {
	case 1:
		return text(50).Draw(t, "string")
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return json.Number(rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,10})?`).Draw(t, "number"))
	case 4:
		return rapid.Float64Range(-1e300, 1e300).Draw(t, "float")
	case 5:
		return nil
	case 6:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			list = append(list, anything(t, depth-1))
		}
		return list
	default:
		return object(depth).Draw(t, "object")
	}
}

func marshal(t *rapid.T, v any) string {
	encoded, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}
