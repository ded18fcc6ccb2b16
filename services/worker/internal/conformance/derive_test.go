package conformance

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/services/worker/internal/harness"
)

// The suite fails on a claim too much and on one too little.
func TestProblems(t *testing.T) {
	t.Parallel()
	all := fixtures()
	passed := map[string]int{}
	for _, f := range all {
		passed[f.name] = len(Ways())
	}
	everything := seen(all, passed, len(Ways()))
	right := harness.Capabilities{}
	for _, key := range harness.CapabilityKeys() {
		right[key] = harness.Capability{Level: harness.Native, EvidenceID: "conformance/x"}
		if slices.Contains(notJudged(), key) {
			right[key] = harness.Capability{Level: harness.Unavailable, Reason: "elsewhere"}
		}
	}
	if p := problems(right, everything); len(p) > 0 {
		t.Errorf("what was seen and claimed has problems: %q", p)
	}
	passed["form"] = 1 // over one way only
	for name, c := range map[string]struct {
		change func(harness.Capabilities)
		judged map[string]bool
		says   string
	}{
		"more than was seen": {func(harness.Capabilities) {}, seen(all, passed, len(Ways())), "interrupt.form_input is claimed as native, and was not seen"},
		"less than was seen": {func(c harness.Capabilities) {
			c["stream.text"] = harness.Capability{Level: harness.Unsupported, Reason: "modest"}
		}, everything, "stream.text is said to be unsupported, and was seen"},
		"no level":     {func(c harness.Capabilities) { delete(c, "skills") }, everything, "skills has no level"},
		"no evidence":  {func(c harness.Capabilities) { c["stream.text"] = harness.Capability{Level: harness.Native} }, everything, "names no evidence"},
		"no reason":    {func(c harness.Capabilities) { c["skills"] = harness.Capability{Level: harness.Unsupported} }, everything, "without a reason"},
		"odd level":    {func(c harness.Capabilities) { c["skills"] = harness.Capability{Level: "certified", Reason: "x"} }, everything, "has the level"},
		"unknown key":  {func(c harness.Capabilities) { c["stream.smell"] = right["stream.text"] }, everything, "no capability of the contract"},
		"nobody looks": {func(harness.Capabilities) {}, map[string]bool{}, "never both or neither"},
	} {
		claims := maps.Clone(right)
		c.change(claims)
		if p := strings.Join(problems(claims, c.judged), "\n"); !strings.Contains(p, c.says) {
			t.Errorf("%s: %q", name, p)
		}
	}
}

// A fixture has a name of its own, and one that shows something optional can be
// declared unsupported.
func TestFixturesAreNamed(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, f := range fixtures() {
		if names[f.name] || f.name == "" || f.run == nil {
			t.Errorf("the fixture %q stands twice, or does nothing", f.name)
		}
		names[f.name] = true
	}
}
