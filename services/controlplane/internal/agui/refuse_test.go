package agui_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventtest"
	"cofferdam.dev/services/controlplane/internal/agui"
)

// What the client does not notice is refused here, and so is everything after it.
func TestWhatWouldMakeAnInvalidStreamIsRefused(t *testing.T) {
	t.Parallel()
	type drafts = []event.Draft
	for name, c := range map[string]struct {
		before drafts
		event  event.Draft
	}{
		"text without a start":               {nil, says("1", "a")},
		"text after its end":                 {drafts{starts("1"), stops("1")}, says("1", "a")},
		"a text opened again":                {drafts{starts("1"), stops("1")}, starts("1")},
		"a tool call opened again":           {drafts{calls("1", `{}`), returns("1", `1`)}, calls("1", `{}`)},
		"a result without a call":            {nil, returns("1", `1`)},
		"a second result":                    {drafts{calls("1", `{}`), returns("1", `1`)}, returns("1", `2`)},
		"a result after an error":            {drafts{calls("1", `{}`), fails("1")}, returns("1", `1`)},
		"a result although no arguments":     {drafts{calls("1", `{}`), argues("1", `{"a":`)}, returns("1", `1`)},
		"finished with text open":            {drafts{starts("1")}, finishes()},
		"finished with a call open":          {drafts{calls("1", `{}`)}, finishes()},
		"a second terminal":                  {drafts{finishes()}, finishes()},
		"an error after finished":            {drafts{finishes()}, root(event.RunError{Code: "internal", Message: "No.", SideEffectStatus: event.SideEffectsNone})},
		"text after the terminal":            {drafts{finishes()}, starts("1")},
		"a second beginning":                 {nil, root(event.RunStarted{HarnessID: "native", AdapterVersion: "1"})},
		"a namespace that nobody opened":     {nil, in(event.TextStarted{MessageID: "1"}, "a")},
		"interrupted without a question":     {nil, waits(event.InterruptedForHumanInput)},
		"text after a question":              {drafts{calls("1", `{"path":"a.txt"}`), asksToApprove("1")}, starts("1")},
		"a text that is not valid":           {drafts{starts("1")}, says("1", "\xff")},
		"a forbidden control character":      {drafts{starts("1")}, says("1", "\x00")},
		"an event without a payload":         {nil, event.Draft{}},
		"arguments after they were given":    {drafts{calls("1", `{"a":1}`)}, argues("1", `{}`)},
		"a warning whose details are a list": {nil, root(event.Warning{Code: "a", Message: "b", Details: `[]`})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := stamped(runID, append(slices.Clone(c.before), c.event)...)
			e := agui.NewEncoder(threadID, clientID)
			encode(t, e, run[:len(run)-1]...)
			frames, err := e.Encode(run[len(run)-1])
			var broken *event.ViolationError
			if !errors.As(err, &broken) || frames != nil {
				t.Fatalf("%q, %v", frames, err)
			}
			fine := stamped(runID, append(slices.Clone(c.before), root(event.Warning{Code: "a", Message: "b"}))...)
			if _, again := e.Encode(fine[len(fine)-1]); !errors.Is(again, err) {
				t.Fatalf("the encoder went on: %v", again)
			}
			if _, again := e.Reopen(); !errors.Is(again, err) {
				t.Fatalf("the encoder opened again: %v", again)
			}
		})
	}
}

func TestEventsOfAnotherRunAreRefused(t *testing.T) {
	t.Parallel()
	e := agui.NewEncoder(threadID, clientID)
	encode(t, e, stamped(runID)...)
	if _, err := e.Encode(stamped("run_2", starts("1"))[1]); err == nil {
		t.Fatal("an event of another run was encoded")
	}
}

func TestAStreamBeginsWithTheBeginning(t *testing.T) {
	t.Parallel()
	e := agui.NewEncoder(threadID, clientID)
	if frames, err := e.Reopen(); frames != nil || err != nil {
		t.Fatalf("%q, %v", frames, err)
	}
	if _, err := e.Encode(stamped(runID, starts("1"))[1]); err == nil {
		t.Fatal("a stream began in the middle")
	}
}

func TestAnEmptyDeltaIsNothing(t *testing.T) {
	t.Parallel()
	run := stamped(runID, starts("1"), says("1", ""))
	e := agui.NewEncoder(threadID, clientID)
	encode(t, e, run[:2]...)
	if frames := encode(t, e, run[2]); frames != nil {
		t.Fatalf("%q", frames)
	}
	next := stamped(runID, starts("1"), says("1", "a"))[2]
	if frames := encode(t, e, next); len(frames) != 1 {
		t.Fatalf("%q", frames)
	}
}

// Whatever is open when a run is cancelled or fails is closed in the stream.
func TestEveryAbruptEndIsAStrictStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		run := eventtest.Run().Draw(t, "run")
		cut := rapid.IntRange(1, len(run)-1).Draw(t, "cut")
		end := eventtest.PayloadOf(t, rapid.SampledFrom([]event.Type{event.TypeRunCancelled, event.TypeRunError}).Draw(t, "end"))
		events := append(slices.Clone(run[:cut]), event.Draft{Data: end}.Event(eventtest.RunID, eventtest.ConversationID, uint64(cut), run[cut].Timestamp)) //nolint:gosec // an index
		r := reader{threadID: "thread", runID: "run"}
		if err := r.read(encode(t, agui.NewEncoder("thread", "run"), events...)); err != nil {
			t.Fatal(err)
		}
	})
}

// A snapshot that a client could not read is left out; the question still comes.
func TestASnapshotThatIsTooLargeIsLeftOut(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("\"", event.MaxDeltaBytes)
	drafts := []event.Draft{starts("1")}
	for range 100 { // 6.25 MiB, and twice that as JSON
		drafts = append(drafts, says("1", big))
	}
	drafts = append(drafts, stops("1"), calls("1", `{"path":"a.txt"}`), asksToApprove("1"), waits(event.InterruptedForToolApproval))
	frames := encode(t, agui.NewEncoder(threadID, clientID), stamped(runID, drafts...)...)
	for _, f := range frames {
		if len(f) > 8<<20 {
			t.Fatalf("a frame of %d bytes", len(f))
		}
	}
	if n := len(frames); !strings.Contains(string(frames[n-1]), `"type":"interrupt"`) || !strings.Contains(string(frames[n-2]), "STATE_SNAPSHOT") {
		t.Fatal("the question did not come behind the state")
	}
}
