package scale

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Report is the closing line of `make scale`.
type Report struct {
	Bindings int `json:"bindings"`
	// PeakLive is how many workers were alive at once before the first turn.
	PeakLive  int `json:"peak_live"`
	Completed int `json:"completed"`
	// DistinctInstances is how many different sandboxes the bindings had.
	DistinctInstances int `json:"distinct_instances"`
	// CrossedCanaries were seen where they do not belong.
	CrossedCanaries int `json:"crossed_canaries"`
	// Places is how many places were read, and CanariesSeen how many canaries stood
	// where they belong: a look that finds none there proves nothing.
	Places       int `json:"places_read"`
	CanariesSeen int `json:"own_canaries_seen"`

	RSSMiB float64 `json:"rss_mib_per_idle_worker"`
	PSSMiB float64 `json:"pss_mib_per_idle_worker"`
	// Claim to ready is from the request for a run to its first committed event, one
	// at a time: claim, identity, ready, capabilities, bind and the fence are in it.
	WarmP50 float64 `json:"claim_ready_p50_ms_warm"`
	WarmP95 float64 `json:"claim_ready_p95_ms_warm"`
	ColdP50 float64 `json:"claim_ready_p50_ms_cold"`
	ColdP95 float64 `json:"claim_ready_p95_ms_cold"`

	FillSeconds  float64 `json:"fill_seconds"`
	TurnsSeconds float64 `json:"turns_seconds"`
}

// percentile of durations, in milliseconds.
func percentile(all []time.Duration, p int) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	i := min(len(sorted)-1, len(sorted)*p/100)
	return float64(sorted[i].Microseconds()) / 1000
}

// Verdict says what did not hold; figures are no part of it.
func (r Report) Verdict() error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.PeakLive < r.Bindings || r.Completed != r.Bindings || r.DistinctInstances != r.Bindings {
		say("of %d bindings %d were alive at once in %d sandboxes, and %d completed", r.Bindings, r.PeakLive, r.DistinctInstances, r.Completed)
	}
	if r.CrossedCanaries != 0 {
		say("%d canaries stand where they do not belong", r.CrossedCanaries)
	}
	// In its events and in its state at least each conversation has its own.
	if r.CanariesSeen < 2*r.Bindings {
		say("only %d canaries were seen at all, so that nothing is proven", r.CanariesSeen)
	}
	return errors.Join(errs...)
}
