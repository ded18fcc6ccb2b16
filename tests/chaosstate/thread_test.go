package chaosstate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
)

// Each lie that a turn can tell is counted as what it is.
func TestLiesAreFound(t *testing.T) {
	saved := func(mark string, revision uint64, loaded ...string) outcome {
		return outcome{mark: mark, terminal: finished, revision: revision, loaded: loaded, known: true}
	}
	lost := func(mark, code string, loaded ...string) outcome {
		return outcome{mark: mark, terminal: failed, code: code, loaded: loaded, known: true}
	}
	cut := outcome{mark: "x", terminal: failed, code: "sandbox_evicted"}
	for name, row := range map[string]struct {
		turns []outcome
		want  Report
	}{
		"a head moved without an answer": {
			[]outcome{{mark: "a", terminal: finished, revision: 1, known: true, unheard: true}, {mark: "b", terminal: failed, code: "sandbox_evicted", unheard: true}},
			Report{Turns: 2, Acknowledged: 1, SavedUnheard: 1},
		},
		"all is well": {
			[]outcome{saved("a", 1), lost("b", "sandbox_evicted", "a"), cut, saved("c", 2, "a"), lost("d", uncertain, "a", "c"), saved("e", 3, "a", "c")},
			Report{Turns: 6, Acknowledged: 3, UncertainReported: 1},
		},
		"a saved turn is gone":            {[]outcome{saved("a", 1), saved("b", 2)}, Report{Turns: 2, Acknowledged: 2, AcknowledgedLost: 1}},
		"it is gone for good":             {[]outcome{saved("a", 1), saved("b", 2), saved("c", 3, "b")}, Report{Turns: 3, Acknowledged: 3, AcknowledgedLost: 1}},
		"a failed turn is there":          {[]outcome{lost("a", "sandbox_evicted"), saved("b", 1, "a")}, Report{Turns: 2, Acknowledged: 1, PendingRestored: 1}},
		"an uncertain turn is there":      {[]outcome{lost("a", uncertain), saved("b", 1, "a")}, Report{Turns: 2, Acknowledged: 1, PendingRestored: 1, UncertainReported: 1}},
		"turns change places":             {[]outcome{saved("a", 1), saved("b", 2, "a"), saved("c", 3, "b", "a")}, Report{Turns: 3, Acknowledged: 3, Violations: 1}},
		"only an answer tells of a turn":  {[]outcome{saved("a", 1), saved("b", 2, "a"), saved("c", 3, "b", "a")}, Report{Turns: 3, Acknowledged: 3, Violations: 1}},
		"a revision comes twice":          {[]outcome{saved("a", 1), saved("b", 1, "a")}, Report{Turns: 2, Acknowledged: 2, Violations: 1}},
		"a failed turn has a revision":    {[]outcome{{mark: "a", terminal: failed, code: "internal", revision: 1}}, Report{Turns: 1, Violations: 1}},
		"a turn ends as nothing":          {[]outcome{{mark: "a"}}, Report{Turns: 1, Violations: 1}},
		"a finished turn hides its state": {[]outcome{{mark: "a", terminal: finished, revision: 1}}, Report{Turns: 1, Acknowledged: 1, Violations: 1}},
	} {
		var got Report
		v := newThread(name)
		for _, o := range row.turns {
			v.take(&got, o)
		}
		bad := got.AcknowledgedLost+got.PendingRestored+got.Violations > 0
		if bad != (len(got.wrong) > 0) {
			t.Errorf("%s: said %q", name, got.wrong)
		}
		got.wrong = nil
		if fmt.Sprint(got) != fmt.Sprint(row.want) {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
		got.Kills, got.Points, got.UncertainReported, got.SavedUnheard = 5, map[string]int{"somewhere": 5}, 1, 1
		if err := got.Verdict(5); (err == nil) != (!bad && got.Acknowledged > 0) {
			t.Errorf("%s: verdict %v", name, err)
		}
	}
}

// What was not shown is not passed.
func TestTooLittleIsNoPass(t *testing.T) {
	for name, r := range map[string]Report{
		"a point without a kill": {Kills: 9, Acknowledged: 1, UncertainReported: 1, SavedUnheard: 1, Points: map[string]int{"a": 9, "b": 0}},
		"too few kills":          {Kills: 8, Acknowledged: 1, UncertainReported: 1, SavedUnheard: 1, Points: map[string]int{"a": 8}},
		"nothing saved":          {Kills: 9, UncertainReported: 1, SavedUnheard: 1, Points: map[string]int{"a": 9}},
		"nothing unheard":        {Kills: 9, Acknowledged: 1, UncertainReported: 1, Points: map[string]int{"a": 9}},
		"nothing uncertain":      {Kills: 9, Acknowledged: 1, SavedUnheard: 1, Points: map[string]int{"a": 9}},
	} {
		if r.Verdict(9) == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// A long conversation is compared as far as it is told.
func TestOnlyWhatIsToldIsCompared(t *testing.T) {
	var r Report
	v := newThread("long")
	var all []string
	for n := range 3 * recalled {
		mark := strconv.Itoa(n)
		v.take(&r, outcome{mark: mark, terminal: finished, revision: uint64(n + 1), loaded: slices.Clone(all), known: true})
		all = append(all, mark)
		all = all[max(len(all)-recalled, 0):]
	}
	if len(r.wrong) > 0 {
		t.Errorf("%q", r.wrong)
	}
}

// Marks are found in what was asked, and not in what was answered to it.
func TestMarksAreFound(t *testing.T) {
	event := func(typ, text string) apiclient.Event {
		raw, err := json.Marshal(map[string]string{"delta": text})
		if err != nil {
			t.Fatal(err)
		}
		return apiclient.Event{Type: typ, Data: raw}
	}
	said := "I remember; you said “" + script("turn-1", 0) + "”, and I “; you said “" + script("turn-1", 0) + "”, turn-0”; you said “" + script("turn-2", 9) + "”, and I “x”."
	log := []apiclient.Event{
		event("run.started", ""), event("text.started", ""), event("text.delta", said[:40]), event("text.delta", said[40:]), event("text.finished", ""),
		event("text.started", ""), event("text.delta", "turn-3"),
	}
	if marks, known := found(log, delta); !known || !slices.Equal(marks, []string{"turn-1", "turn-2"}) {
		t.Errorf("%q, %v", marks, known)
	}
	if marks, known := found(log[:5], delta); known || marks != nil {
		t.Errorf("a log that breaks off: %q", marks)
	}
}
