package stdio

import (
	"encoding/json"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
)

// lines are messages of every type.
func lines() []string {
	return []string{
		`{"type":"ready","protocol":1}`,
		`{"type":"event","event":{"type":"text.delta","namespace":["a"],"data":{"message_id":"m","delta":"x"}}}`,
		`{"type":"event","event":{"type":"tool.finished","data":{"tool_call_id":"c","result":{"ID":1,"id":2}}}}`,
		`{"type":"tool_call","tool_call_id":"c","tool_id":"fs.read","arguments":{"path":"a"},"parent_message_id":"m","namespace":["a"]}`,
		`{"type":"tool_call","tool_call_id":"c","tool_id":"fs.read"}`,
		`{"type":"memory_get","id":"q","scope":"user","key":"k"}`,
		`{"type":"memory_put","id":"q","scope":"user","key":"k","kind":"semantic","content_type":"text/plain","content":"x","expected_revision":3}`,
		`{"type":"upload","id":"u","name":"a.txt","mime_type":"text/plain","data":"aGVsbG8="}`,
		`{"type":"state","data":"aGVsbG8="}`,
		`{"type":"commit","state":"aGVsbG8=","stop_reason":"stop"}`,
		`{"type":"commit","stop_reason":"stop"}`,
		`{"type":"interrupt","form":{"prompt":"p","fields":[{"field_name":"f","field_type":"text","required":true}]}}`,
		`{"type":"interrupt","state":"","approvals":[{"tool_call_id":"c","tool_id":"fs.read","arguments":{},"allowed_decisions":["approve"]}]}`,
		`{"type":"error","code":"model_failed","retry_after_seconds":3}`,
		`{"type":"log","text":"hello"}`,
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, l := range lines() {
		m, err := decode([]byte(l))
		if err != nil || m == nil {
			t.Errorf("%s: %v, %v", l, m, err)
		}
	}
	if m, err := decode([]byte(`{"type":"event","event":{"type":"text.delta","data":{"message_id":"m","delta":""}}}`)); m != nil || err != nil {
		t.Errorf("a delta of nothing: %v, %v", m, err)
	}
	for _, l := range []string{
		``, `[]`, `"ready"`, `null`, `{"type":1}`, `{"type":"ready"}`, `{"type":"ready","protocol":"1"}`, `{"type":"ready","protocol":1,"extra":1}`,
		`{"type":"commit","state":"not base64!","stop_reason":"stop"}`, `{"type":"commit","state":""}`, `{"Type":"ready","protocol":1}`,
		`{"type":"tool_call","tool_call_id":"c","tool_id":"t","arguments":{"a":1,"a":2}}`,
		`{"type":"memory_put","id":"q","scope":"user","key":"k","kind":"k","content_type":"t","content":"x","expected_revision":-1}`,
		`{"type":"log","text":"` + strings.Repeat("x", maxLine) + `"}`,
	} {
		if m, err := decode([]byte(l)); err == nil {
			t.Errorf("%.100s was decoded as %#v", l, m)
		}
	}
}

// FuzzDecode: no line panics, and what is decoded is bounded and of a known type.
func FuzzDecode(f *testing.F) {
	for _, l := range lines() {
		f.Add([]byte(l))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decode(text)
		if err != nil || m == nil {
			return
		}
		again, err := json.Marshal(m)
		if err != nil {
			if c, ok := m.(*toolCallMessage); !ok || c.Arguments != "" {
				t.Fatalf("%q was decoded as %#v, which cannot be encoded: %v", text, m, err)
			}
			return
		}
		if e, ok := m.(*eventMessage); ok {
			if err := event.Validate(e.draft.Event("r", "c", 0, anyTime()), event.Bounds{}); err != nil && len(text) < event.MaxEventBytes/2 {
				t.Fatalf("%q has a draft that is not valid: %v", text, err)
			}
		}
		if len(again) > 8*maxLine {
			t.Fatalf("%d bytes became %d", len(text), len(again))
		}
	})
}
