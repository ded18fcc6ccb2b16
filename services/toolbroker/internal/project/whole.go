package project

import (
	"bytes"
	"encoding/json"
)

// MaxWholeBytes bounds a result that is kept as a whole, in bytes of JSON.
const MaxWholeBytes = 16 << 20

// whole is the members of a result that say what the tool answered, binary data
// too, in the form of the protocol; nil where that is more than most bytes.
func whole(fields map[string]json.RawMessage, r Redactor, most int) []byte {
	members := map[string]any{}
	b := builder{redact: r}
	for _, name := range []string{"content", "structuredContent", "isError"} {
		raw, ok := fields[name]
		if !ok {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil {
			return nil
		}
		members[name] = b.cleanValue(v)
	}
	out := encode(members)
	if len(out) > most {
		return nil
	}
	return out
}
