package chaostools

import (
	"errors"
	"fmt"
)

// Report is the closing line of `make chaos-tools`.
type Report struct {
	// Calls is how many runs were asked for, each with one call of a key of its own.
	Calls int `json:"calls"`
	// Kills of the ToolBroker, of workers and of the control plane.
	Kills int `json:"kills"`
	// Replacements of leases that were asked for; those that kills bring about come
	// on top.
	Replacements int `json:"replacements"`
	// Effects that happened, and of how many keys.
	Effects int `json:"effects"`
	Keys    int `json:"keys"`
	// DuplicatedEffects are those that a key had more than one of.
	DuplicatedEffects int `json:"duplicated_effects"`
	// UnknownOutcomes are calls of which nobody knows whether they happened, and the
	// ledger says so.
	UnknownOutcomes int `json:"unknown_outcomes"`
	// Revoked are calls that were taken back before they began.
	Revoked int `json:"revoked"`
	// Violations are calls of which something is said that cannot be true.
	Violations int `json:"violations"`

	wrong []string
}

// judge fills in what became of the calls.
func (r *Report) judge(calls []*call) {
	r.Calls = len(calls)
	for _, c := range calls {
		n := len(c.effects)
		r.Effects += n
		if n > 0 {
			r.Keys++
			r.DuplicatedEffects += n - 1
		}
		switch c.state() {
		case rowDispatched:
			r.UnknownOutcomes++
		case rowRevoked:
			r.Revoked++
		}
		if w := c.wrong(); len(w) > 0 {
			r.Violations++
			r.wrong = append(r.wrong, w...)
		}
	}
}

// Verdict says what did not hold.
func (r *Report) Verdict() error {
	var errs []error
	for _, w := range r.wrong {
		errs = append(errs, errors.New(w))
	}
	switch {
	case r.DuplicatedEffects > 0 || r.Violations > 0:
		errs = append(errs, fmt.Errorf("%d duplicated effects, %d violations", r.DuplicatedEffects, r.Violations))
	case r.Kills == 0 || r.Replacements == 0:
		errs = append(errs, fmt.Errorf("%d kills and %d replacements: nothing is shown", r.Kills, r.Replacements))
	case r.Effects < r.Calls/2:
		errs = append(errs, fmt.Errorf("only %d effects of %d calls: hardly anything is shown", r.Effects, r.Calls))
	}
	return errors.Join(errs...)
}
