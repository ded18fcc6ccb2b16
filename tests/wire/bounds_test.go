package wire

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// exceptions are fields that a peer may send and that need no bound of their
// own, each with the reason. An entry that is not needed is an error.
var exceptions = map[protoreflect.FullName]string{}

// What a peer sends is decoded before anybody looks at it, so every field of it
// has a bound on the wire. The frames of a worker are as untrusted as requests.
func TestWhateverAPeerSendsIsBounded(t *testing.T) {
	w := walker{seen: map[protoreflect.FullName]bool{}, problems: map[protoreflect.FullName]string{}}
	for _, m := range methods() {
		w.message(m.Input())
		if m.Parent().Name() == "WorkerService" && m.IsStreamingServer() {
			w.message(m.Output())
		}
	}
	if w.fields == 0 {
		t.Error("no field was looked at")
	}
	for _, name := range slices.Sorted(maps.Keys(w.problems)) {
		if _, ok := exceptions[name]; !ok {
			t.Errorf("%s: %s", name, w.problems[name])
		}
	}
	for name, reason := range exceptions {
		if w.problems[name] == "" {
			t.Errorf("%s needs no exception any more", name)
		}
		if strings.TrimSpace(reason) == "" {
			t.Errorf("%s: an exception has a reason", name)
		}
	}
}

// walker looks at messages and at what stands in them.
type walker struct {
	seen     map[protoreflect.FullName]bool
	problems map[protoreflect.FullName]string
	fields   int
}

func (w *walker) message(m protoreflect.MessageDescriptor) {
	if w.seen[m.FullName()] {
		return
	}
	w.seen[m.FullName()] = true
	switch m.FullName() {
	case "google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.Empty":
		return // numbers only
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		w.fields++
		if problem := unbounded(f); problem != "" {
			w.problems[f.FullName()] = problem
		}
		if f.IsMap() {
			f = f.MapValue()
		}
		if f.Message() != nil {
			w.message(f.Message())
		}
	}
}
