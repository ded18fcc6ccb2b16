package project

import (
	"encoding/json"
	"strings"
	"testing"
)

// What is kept of a result that was cut is all of it, cleaned in the same way.
func TestTheWholeOfWhatWasCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxBytes)
	r := NewRedactor("canary-5f1d0c9e7a")
	raw := `{"content":[{"type":"text","text":"` + long + `\u0000 canary-5f1d0c9e7a"},{"type":"image","data":"aGVsbG8=","mimeType":"image/png"}],` +
		`"structuredContent":{"id":12345678901234567890,"canary-5f1d0c9e7a":["\ud800"]},"isError":true,"_meta":{"a":1}}`
	got := Answer([]byte(raw), r)
	if !got.Truncated || len(got.JSON) > MaxBytes {
		t.Fatalf("%d bytes, truncated %v", len(got.JSON), got.Truncated)
	}
	want := `{"content":[{"text":"` + long + `� [redacted]","type":"text"},{"data":"aGVsbG8=","mimeType":"image/png","type":"image"}],` +
		`"isError":true,"structuredContent":{"[redacted]":["�"],"id":12345678901234567890}}`
	if string(got.Whole) != want {
		t.Errorf("kept:\n%.200s…%s\nwant …%s", got.Whole, got.Whole[max(0, len(got.Whole)-200):], want[len(want)-200:])
	}
}

func TestThereIsNoWhole(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"nothing was cut": `{"content":[{"type":"text","text":"short"}]}`, "in no form": `[]`,
	} {
		if got := Answer([]byte(raw), Redactor{}); got.Whole != nil {
			t.Errorf("%s: %d bytes are kept", name, len(got.Whole))
		}
	}
	fields := map[string]json.RawMessage{"content": json.RawMessage(`["\ud800\ud800"]`)}
	want := `{"content":["��"]}`
	if got := whole(fields, Redactor{}, len(want)); string(got) != want {
		t.Errorf("kept: %s", got)
	}
	if got := whole(fields, Redactor{}, len(want)-1); got != nil {
		t.Errorf("over its bound: %s", got)
	}
}
