package linearizability

import (
	"strings"
	"testing"
	"time"
)

// history of one binding, one operation after the other unless open.
type story struct {
	entries []Entry
	clock   int64
}

func (s *story) then(op Operation, o Outcome) *story {
	if op.Key == "" {
		op.Key = "hs"
	}
	call := s.clock + 1
	s.clock += 2
	ret := s.clock
	if o.Result == unknown {
		ret = never
	}
	s.entries = append(s.entries, Entry{Client: len(s.entries), Op: op, Outcome: o, Call: call, Return: ret})
	return s
}

func leased() *story {
	return (&story{}).
		then(Operation{ID: "1", Kind: opReplace}, Outcome{Result: done, Revision: 1}).
		then(Operation{ID: "2", Kind: opStart, Run: "run"}, Outcome{Result: done}).
		then(Operation{ID: "3", Kind: opAppend, Generation: 1, Run: "run"}, Outcome{Result: done})
}

func at(generation uint32, k kind, id string) Operation {
	return Operation{ID: id, Kind: k, Generation: generation, Run: "run"}
}

// What each rule of the contract refuses, the checker refuses.
func TestCheckerKnowsTheRules(t *testing.T) {
	replaced := func() *story { return leased().then(at(1, opReplace, "4"), Outcome{Result: done, Revision: 2}) }
	admit := func(generation uint32, id, effect string) Operation {
		op := at(generation, opAdmit, id)
		op.Effect = effect
		return op
	}
	put := func(id string, expected uint64) Operation {
		return Operation{ID: id, Kind: opPut, Key: memoryKey("record"), Binding: "hs", Generation: 1, Run: "run", Expected: expected}
	}
	for name, tt := range map[string]struct {
		story *story
		ok    bool
	}{
		"a commit":                              {leased().then(at(1, opCommit, "4"), Outcome{Result: done, Revision: 1}), true},
		"a commit of a generation that is over": {replaced().then(at(1, opCommit, "5"), Outcome{Result: done, Revision: 1}), false},
		"a commit that is refused for nothing":  {leased().then(at(1, opCommit, "4"), Outcome{Result: stale}), false},
		"a commit that was made and overtaken":  {leased().then(at(1, opCommit, "4"), Outcome{Result: stale, Lost: true}), true},
		"two commits of one run": {leased().then(at(1, opCommit, "4"), Outcome{Result: done, Revision: 1}).
			then(at(1, opCommit, "5"), Outcome{Result: done, Revision: 1}), false},
		"a commit that is unknown, and happened": {leased().then(at(1, opCommit, "4"), Outcome{Result: unknown}).
			then(at(1, opCommit, "5"), Outcome{Result: stale}), true},
		"a commit that is unknown, and did not": {leased().then(at(1, opCommit, "4"), Outcome{Result: unknown}).
			then(at(1, opCommit, "5"), Outcome{Result: done, Revision: 1}), true},
		"one generation replaced twice, told alike": {replaced().then(at(1, opReplace, "5"), Outcome{Result: done, Revision: 2}), true},
		"a generation that falls": {replaced().then(at(2, opReplace, "5"), Outcome{Result: done, Revision: 3}).
			then(at(1, opReplace, "6"), Outcome{Result: done, Revision: 2}), false},
		"an admission of a generation that is over": {replaced().then(admit(1, "5", "call"), Outcome{Result: done, Body: "5"}), false},
		"an effect that answers again": {leased().then(admit(1, "4", "call"), Outcome{Result: done, Body: "4"}).
			then(admit(1, "5", "call"), Outcome{Result: done, Body: "4"}), true},
		"an effect that happens twice": {leased().then(admit(1, "4", "call"), Outcome{Result: done, Body: "4"}).
			then(admit(1, "5", "call"), Outcome{Result: done, Body: "5"}), false},
		"a run that did something and is carried over": {replaced().then(at(2, opAppend, "5"), Outcome{Result: done}), false},
		"memory": {leased().then(put("4", 0), Outcome{Result: done, Revision: 1}).then(put("5", 1), Outcome{Result: done, Revision: 2}), true},
		"a lost update of memory": {leased().then(put("4", 0), Outcome{Result: done, Revision: 1}).
			then(put("5", 0), Outcome{Result: done, Revision: 1}), false},
		"memory of a generation that is over": {replaced().then(put("5", 0), Outcome{Result: done, Revision: 1}), false},
		"memory that is refused for nothing":  {leased().then(put("4", 0), Outcome{Result: conflict}), false},
		"what no caller can be told":          {leased().then(at(1, opCommit, "4"), Outcome{Result: "impossible: internal"}), false},
	} {
		violations := Check(tt.story.entries, time.Minute)
		if (len(violations) == 0) != tt.ok {
			t.Errorf("%s: %v", name, violations)
		}
	}
}

// A part that cannot be judged in time is a violation and not a success.
func TestUnknownIsAFailure(t *testing.T) {
	s := &story{}
	for range 2000 {
		s.then(Operation{ID: "x", Kind: opReplace}, Outcome{Result: unknown})
		s.then(at(0, opAdmit, "y"), Outcome{Result: unknown})
	}
	s.then(at(9, opCommit, "z"), Outcome{Result: done, Revision: 1})
	violations := Check(s.entries, time.Nanosecond)
	if len(violations) != 1 || !strings.Contains(violations[0].Error(), "Unknown") {
		t.Errorf("%d violations", len(violations))
	}
}
