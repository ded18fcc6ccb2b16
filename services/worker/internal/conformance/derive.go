package conformance

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"cofferdam.dev/services/worker/internal/harness"
)

// notJudged are the capabilities that no fixture of this suite shows: they belong
// to what stands around an adapter, or to tests of its own.
func notJudged() []string {
	return []string{
		"tool.builtin", "tool.caller_credentials", "input.images", "input.documents", "skills", "subagents.mixed_harness", "middleware.portable",
		"memory.episodic_reference", "memory.procedural", "memory.shared_policy",
		"observability.metrics", "observability.tracing", "observability.trace_propagation", "runtime.sandbox_isolation",
	}
}

// seen tells for each judged capability whether every fixture that shows it has
// passed over all ways.
func seen(all []fixture, passed map[string]int, ways int) map[string]bool {
	out := map[string]bool{}
	for _, f := range all {
		for _, key := range f.keys {
			ok := passed[f.name] == ways
			if before, judged := out[key]; judged {
				ok = ok && before
			}
			out[key] = ok
		}
	}
	return out
}

// compare fails on a claim that was not seen, and on one that is less than what
// was seen.
func compare(t *testing.T, s Setup, all []fixture, passed map[string]int) {
	t.Helper()
	for _, p := range problems(s.New(t, slog.New(slog.DiscardHandler)).Descriptor().Capabilities, seen(all, passed, len(s.Over))) {
		t.Error(p)
	}
}

// problems are what is wrong with claims, given what was judged and seen.
func problems(claims harness.Capabilities, judged map[string]bool) []string {
	var out []string
	wrong := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, key := range harness.CapabilityKeys() {
		c, claimed := claims[key]
		has := c.Level == harness.Native || c.Level == harness.Emulated
		shown, isJudged := judged[key]
		switch {
		case isJudged == slices.Contains(notJudged(), key):
			wrong("%s is judged by a fixture or listed as not judged, never both or neither", key)
		case !claimed:
			wrong("%s has no level", key)
		case has && c.EvidenceID == "":
			wrong("%s is %s, and names no evidence", key, c.Level)
		case !has && c.Level != harness.Unsupported && c.Level != harness.Unavailable:
			wrong("%s has the level %q", key, c.Level)
		case !has && c.Reason == "":
			wrong("%s is %s, without a reason", key, c.Level)
		case isJudged && has && !shown:
			wrong("%s is claimed as %s, and was not seen", key, c.Level)
		case isJudged && !has && shown:
			wrong("%s is said to be %s, and was seen", key, c.Level)
		}
	}
	for key := range claims {
		if !slices.Contains(harness.CapabilityKeys(), key) {
			wrong("%s is no capability of the contract", key)
		}
	}
	return out
}
