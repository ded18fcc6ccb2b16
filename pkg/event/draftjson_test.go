package event_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventtest"
)

// The drafts of the goldens have the published shape of testdata/draft, and come
// back from it.
func TestDraftGoldens(t *testing.T) {
	t.Parallel()
	for name, e := range goldens() {
		text, err := os.ReadFile(filepath.Join("testdata", "draft", name+".json"))
		if err != nil {
			t.Error(err)
			continue
		}
		text = bytes.TrimSuffix(text, []byte("\n"))
		encoded, err := event.EncodeDraft(e.Draft())
		if err != nil || !bytes.Equal(encoded, text) {
			t.Errorf("%s is encoded as\n%s (%v), not as\n%s", name, encoded, err, text)
		}
		decoded, err := event.DecodeDraft(text, event.Bounds{})
		if err != nil || !reflect.DeepEqual(decoded, e.Draft()) {
			t.Errorf("%s is decoded as\n%+v (%v), not as\n%+v", name, decoded, err, e.Draft())
		}
	}
	if files, err := filepath.Glob("testdata/draft/*"); err != nil || len(files) != len(goldens()) {
		t.Errorf("%d golden files for %d drafts (%v)", len(files), len(goldens()), err)
	}
}

// Every event that is valid has a draft that comes back whole.
func TestDraftOfAnyEvent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := eventtest.Event().Draw(t, "event").Draft()
		text, err := event.EncodeDraft(want)
		if err != nil || bytes.ContainsAny(text, "\n\r") {
			t.Fatalf("encoded as %q: %v", text, err)
		}
		got, err := event.DecodeDraft(text, event.Bounds{})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s came back as %+v: %v", text, got, err)
		}
	})
}

func TestDecodeDraftRefuses(t *testing.T) {
	t.Parallel()
	const valid = `{"type":"text.delta","namespace":["a"],"data":{"message_id":"m","delta":"x"}}`
	if _, err := event.DecodeDraft([]byte(valid), event.Bounds{}); err != nil {
		t.Fatal(err)
	}
	swap := func(from, to string) string {
		if !strings.Contains(valid, from) {
			t.Fatalf("%s is not in the valid draft", from)
		}
		return strings.Replace(valid, from, to, 1)
	}
	for name, text := range map[string]string{
		"nothing":                 "",
		"no object":               "[]",
		"two drafts":              valid + valid,
		"a sequence":              swap(`{"type"`, `{"sequence":0,"type"`),
		"a version":               swap(`{"type"`, `{"version":1,"type"`),
		"a run":                   swap(`{"type"`, `{"run_id":"r","type"`),
		"a time":                  swap(`{"type"`, `{"timestamp":"2026-08-17T00:00:00Z","type"`),
		"no type":                 swap(`"type":"text.delta",`, ``),
		"unknown type":            swap(`text.delta`, `text.begun`),
		"type in caps":            swap(`"type"`, `"TYPE"`),
		"type twice":              swap(`{"type"`, `{"type":"text.delta","type"`),
		"type of another payload": swap(`text.delta`, `text.started`),
		"no payload":              swap(`,"data":{"message_id":"m","delta":"x"}`, ``),
		"payload is null":         swap(`{"message_id":"m","delta":"x"}`, `null`),
		"unknown payload field":   swap(`"delta"`, `"extra":1,"delta"`),
		"payload lacks a field":   swap(`"message_id":"m",`, ``),
		"namespace as text":       swap(`["a"]`, `"a"`),
		"namespace of no id":      swap(`["a"]`, `["a b"]`),
		"namespace too deep":      swap(`["a"]`, `["1","2","3","4","5","6","7","8","9"]`),
		"no id":                   swap(`"m"`, `"m m"`),
		"NUL":                     swap(`"x"`, `"\u0000"`),
		"half a surrogate":        swap(`"x"`, `"\ud800"`),
		"not UTF-8":               swap(`"x"`, "\"\xff\""),
		"too large":               swap(`"x"`, `"`+strings.Repeat("x", event.MaxEventBytes)+`"`),
		"arguments in two cases":  `{"type":"tool.started","data":{"tool_call_id":"c","tool_name":"fs.read","arguments":{"a":1,"A":2}}}`,
	} {
		d, err := event.DecodeDraft([]byte(text), event.Bounds{})
		if v, ok := errors.AsType[*event.ViolationError](err); !ok || v.Rule != 0 {
			t.Errorf("%s: decoded as %+v, %v", name, d, err)
		}
	}
	if _, err := event.DecodeDraft([]byte(swap(`"x"`, `""`)), event.Bounds{}); !errors.Is(err, event.ErrEmptyDelta) {
		t.Errorf("an empty delta: %v", err)
	}
	if _, err := event.DecodeDraft([]byte(valid), event.Bounds{EventBytes: len(valid) - 1}); err == nil {
		t.Error("a lower bound does not hold")
	}
	if _, err := event.EncodeDraft(event.Draft{}); err == nil {
		t.Error("a draft without a payload was encoded")
	}
}

// FuzzDecodeDraft: no input panics; what is decoded is what an event may have,
// and comes back equal from what it is encoded as.
func FuzzDecodeDraft(f *testing.F) {
	files, err := filepath.Glob("testdata/draft/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no goldens to begin with: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := event.DecodeDraft(text, event.Bounds{})
		if err != nil {
			if _, ok := errors.AsType[*event.ViolationError](err); !ok && !errors.Is(err, event.ErrEmptyDelta) {
				t.Fatalf("an error of another type: %v", err)
			}
			return
		}
		e := d.Event("run", "conversation", 0, moment())
		if err := event.Validate(e, event.Bounds{}); err != nil && len(text) < event.MaxEventBytes/2 {
			t.Fatalf("%q was decoded and is not valid: %v", text, err)
		}
		encoded, err := event.EncodeDraft(d)
		if err != nil || bytes.ContainsAny(encoded, "\n\r") {
			t.Fatalf("%q was decoded and is encoded as %q: %v", text, encoded, err)
		}
		again, err := event.DecodeDraft(encoded, event.Bounds{})
		if err != nil || !reflect.DeepEqual(d, again) {
			t.Fatalf("%q became %q: %v", text, encoded, err)
		}
	})
}
