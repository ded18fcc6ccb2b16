package project

import (
	"bytes"
	"encoding/json"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
)

// structured adds the structured content, if it fits as a whole: half of it would
// mean something else. Where it is all that there is, its beginning is shown as
// text.
func (b *builder) structured(raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	if value, ok := b.clean(raw); ok && !b.truncated {
		b.structure = value
		return
	}
	if len(b.items) == 0 {
		text := string(raw)
		b.add(item{Type: "text"}, &text)
	}
	b.truncated = true
}

// clean gives the value with its strings cleaned, if an event can hold it: not
// too large, not too deep, and no number that becomes infinite somewhere.
func (b *builder) clean(raw json.RawMessage) (json.RawMessage, bool) {
	if len(raw) > 2*MaxBytes {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil, false
	}
	value := encode(b.cleanValue(v))
	err := strictjson.Check(value, strictjson.Options{
		MaxBytes: max(1, b.room), MaxDepth: event.MaxArgumentsDepth - 1, AllowCaseVariants: true,
	})
	return value, err == nil
}

func (b *builder) cleanValue(v any) any {
	switch v := v.(type) {
	case string:
		return event.SanitizeText(b.redact.Cut(v))
	case []any:
		for i := range v {
			v[i] = b.cleanValue(v[i])
		}
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, member := range v {
			out[event.SanitizeText(b.redact.Cut(k))] = b.cleanValue(member)
		}
		return out
	default:
		return v
	}
}
