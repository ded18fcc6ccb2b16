package event_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
)

// leaf is a scalar in the JSON of a payload, and how to put another there.
type leaf struct {
	path  string
	value any
	set   func(any)
}

func leaves(path string, v any, set func(any)) []leaf {
	var found []leaf
	switch v := v.(type) {
	case map[string]any:
		for key, below := range v {
			found = append(found, leaves(path+"/"+key, below, func(to any) { v[key] = to })...)
		}
	case []any:
		for i, below := range v {
			found = append(found, leaves(fmt.Sprint(path, "/", i), below, func(to any) { v[i] = to })...)
		}
	default:
		return []leaf{{path, v, set}}
	}
	return found
}

// freeForm reports whether any scalar may stand there.
func freeForm(path string) bool {
	for _, field := range []string{"/arguments/", "/result/", "/tool_args/", "/details/", "/metadata/", "/default_value"} {
		if strings.Contains(path+"/", field) {
			return true
		}
	}
	return false
}

// Every single field of every payload is checked: whatever stands there in a
// golden is replaced by what may not, and the event is refused.
func TestEveryFieldIsChecked(t *testing.T) {
	t.Parallel()
	for name, e := range goldens() {
		encoded, err := event.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(encoded, &doc); err != nil {
			t.Fatal(err)
		}
		for _, l := range leaves("", doc["data"], nil) {
			var bad []any
			switch _, isText := l.value.(string); {
			case freeForm(l.path) && isText:
				bad = []any{"a\x01b"}
			case freeForm(l.path):
			case isText:
				bad = []any{"a\x01b", strings.Repeat("w", event.MaxDeltaBytes+1), 1, true, []any{}}
			case l.path == "/cost":
				bad = []any{json.Number("-1"), json.Number("1e999"), "1"}
			case l.value == true || l.value == false:
				bad = []any{1, "true", nil}
			default:
				bad = []any{json.Number("9007199254740992"), json.Number("-1"), "1"}
			}
			if l.value == nil {
				bad = nil // unknown; what may stand there is tried where it is known
			}
			for _, b := range bad {
				l.set(b)
				text, err := json.Marshal(doc)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := event.Decode(text, event.Bounds{}); err == nil {
					t.Errorf("%s: %.20v at %s is taken", name, b, l.path)
				}
			}
			l.set(l.value)
		}
	}
}

// Every field that has no question mark in the contract is required.
func TestEveryRequiredFieldIsRequired(t *testing.T) {
	t.Parallel()
	optional := " message_id(run.started) provider_run_id thread_state retry_after_seconds parent_message_id result_ref details" +
		" field_label field_description field_values default_value placeholder "
	for name, e := range goldens() {
		encoded, err := event.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(encoded, &doc); err != nil {
			t.Fatal(err)
		}
		data, ok := doc["data"].(map[string]any)
		if !ok {
			t.Fatal("no data")
		}
		for _, object := range []map[string]any{doc, data} {
			for key, value := range object {
				delete(object, key)
				text, err := json.Marshal(doc)
				if err != nil {
					t.Fatal(err)
				}
				_, err = event.Decode(text, event.Bounds{})
				may := strings.Contains(optional, " "+key+" ") || strings.Contains(optional, " "+key+"("+string(e.Type())+") ")
				if may != (err == nil) {
					t.Errorf("%s without %s: %v", name, key, err)
				}
				object[key] = value
			}
		}
	}
}

func TestDecodeDropsAnEmptyDeltaAndNamesAnUnknownType(t *testing.T) {
	t.Parallel()
	if _, err := event.Decode([]byte(with("text.delta", `{"message_id":"m","delta":""}`)), event.Bounds{}); !errors.Is(err, event.ErrEmptyDelta) {
		t.Errorf("an empty delta: %v", err)
	}
	_, err := event.Decode([]byte(with("text.begun", `{}`)), event.Bounds{})
	if v, ok := errors.AsType[*event.ViolationError](err); !ok || v.Field != "type" || v.Sequence != 3 {
		t.Errorf("an unknown type: %v", err)
	}
}
