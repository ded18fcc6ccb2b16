package chaosreplicas

import (
	"errors"
	"fmt"
	"time"
)

// Report is the closing line of `make chaos-replicas`.
type Report struct {
	Seconds int `json:"seconds"`
	// Runs that were acknowledged, and how some of them ended.
	Runs      int `json:"runs"`
	Finished  int `json:"finished"`
	Cancelled int `json:"cancelled"`
	Lost      int `json:"control_plane_lost"`
	// Kills of replicas, workers and the host, and Restarts of replicas in order.
	Kills    int `json:"kills"`
	Restarts int `json:"restarts"`
	// Replacements of leases, for whatever reason.
	Replacements int `json:"replacements"`
	// Streams that were read, and Disconnects of those that drop.
	Streams     int `json:"streams"`
	Disconnects int `json:"disconnects"`

	RunsWithoutOneTerminal int `json:"runs_without_one_terminal"`
	PrefixViolations       int `json:"prefix_violations"`
	// StaleAccepted are runs with events that came after they were taken out of
	// service and do not close them.
	StaleAccepted int `json:"stale_accepted"`
	// GoroutinesLeft are of runs and streams, and DescriptorsLeft those that a replica
	// has more at rest than when it was new.
	GoroutinesLeft  int `json:"goroutines_left"`
	DescriptorsLeft int `json:"descriptors_left"`

	wrong []string
}

func (r *Report) say(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// maxWrong is how much of what is wrong is told.
const maxWrong = 20

// Verdict says what did not hold.
func (r *Report) Verdict() error {
	var errs []error
	for _, w := range r.wrong[:min(len(r.wrong), maxWrong)] {
		errs = append(errs, errors.New(w))
	}
	if n := r.RunsWithoutOneTerminal + r.PrefixViolations + r.StaleAccepted + r.GoroutinesLeft + r.DescriptorsLeft; n > 0 || len(r.wrong) > 0 {
		errs = append(errs, fmt.Errorf("%d runs without one terminal, %d prefix violations, %d stale events, %d goroutines and %d descriptors left",
			r.RunsWithoutOneTerminal, r.PrefixViolations, r.StaleAccepted, r.GoroutinesLeft, r.DescriptorsLeft))
	}
	// No measure of speed: a machine that is busy shows as much, later.
	switch {
	case r.Kills == 0 || r.Replacements == 0 || r.Runs < talkers || r.Streams == 0:
		errs = append(errs, fmt.Errorf("%d kills, %d replacements, %d runs and %d streams in %v: hardly anything is shown",
			r.Kills, r.Replacements, r.Runs, r.Streams, time.Duration(r.Seconds)*time.Second))
	case r.Finished == 0:
		errs = append(errs, fmt.Errorf("none of %d runs finished: hardly anything is shown", r.Runs))
	}
	return errors.Join(errs...)
}
