package elicit

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
)

// Action is how a person answered.
type Action string

// The actions of the protocol.
const (
	Accept  Action = "accept"
	Decline Action = "decline"
	Cancel  Action = "cancel"
)

// Answer makes what the server gets of the values of a form: one object that fits
// what it asked for. What was left out is what the server said that it is by
// default. A number or a truth that a form gave as text is taken for what it is.
// Errors: *InvalidError.
func (q Question) Answer(form json.RawMessage) (Action, json.RawMessage, error) {
	var values map[string]any
	err := strictjson.Unmarshal(form, &values, strictjson.Options{MaxBytes: event.MaxFormBytes, MaxDepth: 3})
	if err != nil {
		return "", nil, invalid("not acceptable as JSON")
	}
	if len(q.properties) == 0 {
		if yes, ok := truth(values[confirm]).(bool); !ok || !yes {
			return Decline, nil, nil
		}
		return Accept, json.RawMessage(`{}`), nil
	}
	content := map[string]any{}
	for _, p := range q.properties {
		v, given := values[p.name]
		if v = p.value(v); given && v != nil {
			content[p.name] = v
		} else if p.fallback != nil {
			d := json.NewDecoder(bytes.NewReader(p.fallback))
			d.UseNumber()
			if err := d.Decode(&v); err != nil {
				return "", nil, invalid("no such default")
			}
			content[p.name] = v
		}
	}
	text, err := json.Marshal(content)
	if err != nil {
		return "", nil, errors.Join(invalid("not acceptable as JSON"), err)
	}
	if err := q.schema.CheckText(text); err != nil {
		return "", nil, invalid("%s", err.Error())
	}
	return Accept, text, nil
}

// value is what a form's value means for the property; nil is none.
func (p property) value(v any) any {
	s, text := v.(string)
	switch {
	case text && s == "" && p.kind != "string":
		return nil
	case p.kind == "boolean":
		return truth(v)
	case text && (p.kind == "number" || p.kind == "integer"):
		if _, err := strconv.ParseFloat(s, 64); err == nil && json.Valid([]byte(s)) {
			return json.Number(s)
		}
		return v
	case p.kind == "array" && v != nil:
		if _, list := v.([]any); !list {
			return []any{v}
		}
	}
	return v
}

// truth is a boolean that a form may have given as text.
func truth(v any) any {
	switch v {
	case "true", "on":
		return true
	case "false":
		return false
	default:
		return v
	}
}
