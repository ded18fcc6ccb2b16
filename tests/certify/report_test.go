package certify

import (
	"errors"
	"strings"
	"testing"
)

// A requirement is as good as its worst check, and one without a check is not passed.
func TestTheWorstCheckDecides(t *testing.T) {
	for name, c := range map[string]struct {
		note func(*ledger)
		want Outcome
	}{
		"nothing":                  {func(*ledger) {}, NotRun},
		"held":                     {func(l *ledger) { l.holds("a", nil) }, Passed},
		"one failed":               {func(l *ledger) { l.holds("a", nil); l.holds("b", errors.New("no")) }, Failed},
		"failed and not run":       {func(l *ledger) { l.notRun("a", "why"); l.holds("b", errors.New("no")) }, Failed},
		"one not run":              {func(l *ledger) { l.holds("a", nil); l.notRun("b", "why") }, NotRun},
		"one does not apply":       {func(l *ledger) { l.holds("a", nil); l.notApplicable("b", "why") }, Passed},
		"none applies":             {func(l *ledger) { l.notApplicable("b", "why") }, NotApplicable},
		"none applies or was run":  {func(l *ledger) { l.notApplicable("b", "why"); l.notRun("a", "why") }, NotRun},
		"does not apply and fails": {func(l *ledger) { l.notApplicable("b", "why"); l.holds("a", errors.New("no")) }, Failed},
	} {
		t.Run(name, func(t *testing.T) {
			var l ledger
			c.note(&l)
			got := l.result(Requirements()[0])
			if got.Result != c.want || (got.Reason == "") != (c.want == Passed) || got.Checks == nil {
				t.Errorf("%+v, want %s", got, c.want)
			}
		})
	}
}

// Certified is what passed in this run, all fifteen of it.
func TestOnlyAllFifteenCertify(t *testing.T) {
	all := func(o Outcome, but ...int) (out []Result) {
		for _, r := range Requirements() {
			if len(but) > 0 && but[0] == r.Number {
				continue
			}
			out = append(out, Result{Requirement: r.Number, Result: o})
		}
		return out
	}
	for name, c := range map[string]struct {
		results []Result
		want    bool
	}{
		"all":            {all(Passed), true},
		"none":           {nil, false},
		"one is missing": {all(Passed, 12), false},
		"one failed":     {append(all(Passed, 4), Result{Requirement: 4, Result: Failed}), false},
		"one not run":    {append(all(Passed, 11), Result{Requirement: 11, Result: NotRun}), false},
		"does not apply": {append(all(Passed, 14), Result{Requirement: 14, Result: NotApplicable}), false},
		"one said twice": {append(all(Passed, 15), Result{Requirement: 1, Result: Passed}), false},
	} {
		var s Summary
		s.summarize(c.results)
		if s.Certified != c.want || len(s.Results) != 15 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestWhatIsAskedForIsChecked(t *testing.T) {
	for wrong, c := range map[string]Config{
		"--requirements":                 {Requirements: []int{16}},
		"--harness":                      {Harness: "acp"},
		"--profile":                      {Profile: "x"},
		"--sandbox-profiles: open":       {Profiles: "/no/such/file"},
		"worker describe --harness nati": {Command: "/no/such/cofferdam"},
	} {
		if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%+v: %v, want %q", c, err, wrong)
		}
	}
}
