package chaosstate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Report is the closing line of `make chaos-state`.
type Report struct {
	// Kills is how many processes were killed at a point, and Points how many at
	// each.
	Kills  int            `json:"kills"`
	Points map[string]int `json:"points"`
	// Turns is how many were run, and Acknowledged how many of them were said to be
	// saved.
	Turns        int `json:"turns"`
	Acknowledged int `json:"acknowledged"`
	// AcknowledgedLost are turns that were said to be saved and that a later one did
	// not find.
	AcknowledgedLost int `json:"acknowledged_lost"`
	// PendingRestored are turns that were not said to be saved, and that a later one
	// found.
	PendingRestored int `json:"pending_restored"`
	// UncertainReported are turns that ended with thread_durability_uncertain, one at
	// least. None of them is saved: their end was decided before they said so.
	UncertainReported int `json:"uncertain_reported"`
	// SavedUnheard are turns, one at least, that were said to be saved and began and
	// ended while every state facade died with the answer that their head had moved:
	// the record was asked.
	SavedUnheard int `json:"saved_unheard"`
	// Violations are turns of which anything else is said that cannot be true.
	Violations int `json:"violations"`

	wrong []string
}

// Verdict says what did not hold; kills is how many were asked for.
func (r *Report) Verdict(kills int) error {
	var errs []error
	for _, w := range r.wrong {
		errs = append(errs, errors.New(w))
	}
	if r.AcknowledgedLost+r.PendingRestored+r.Violations > 0 {
		errs = append(errs, fmt.Errorf("%d acknowledged turns lost, %d pending ones restored, %d violations",
			r.AcknowledgedLost, r.PendingRestored, r.Violations))
	}
	for _, point := range slices.Sorted(maps.Keys(r.Points)) {
		if r.Points[point] == 0 {
			errs = append(errs, fmt.Errorf("nothing was killed at %s", point))
		}
	}
	if r.Kills < kills {
		errs = append(errs, fmt.Errorf("%d of %d kills: hardly anything is shown", r.Kills, kills))
	}
	if r.Acknowledged == 0 {
		errs = append(errs, errors.New("no turn was saved: nothing is shown"))
	}
	if r.UncertainReported == 0 {
		errs = append(errs, errors.New("no commit was left uncertain: nothing is shown of those"))
	}
	if r.SavedUnheard == 0 {
		errs = append(errs, errors.New("no head moved without an answer: nothing is shown of those"))
	}
	return errors.Join(errs...)
}
