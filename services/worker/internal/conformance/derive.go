package conformance

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"cofferdam.dev/services/worker/internal/harness"
)

// What a level says follows from what the fixtures of a key have seen, over all
// ways: native is what the harness did itself, emulated what its adapter, the
// worker or a broker did for it, unsupported what was looked for and was not
// there, or could not be tried. Of several the weakest is the key's.

// levels are what one fixture has seen over one way, by key.
type levels map[string]harness.Level

// judgement is what was seen of a key.
type judgement struct {
	level harness.Level
	// evidence are the ids of what has seen it.
	evidence []string
}

// elsewhere are the judgements that nothing within a worker can make, because they
// are about what stands around it: tests that have this folder and this name.
func elsewhere() map[string]judgement {
	return map[string]judgement{
		// What is code of the worker is attacked by a script, a program by a program.
		"runtime.sandbox_isolation": {harness.Emulated, []string{"tests/escape/TestAWorkerReachesNothing", "tests/escape/TestAProgramReachesNothing"}},
	}
}

// weaker gives the weaker of two levels.
func weaker(a, b harness.Level) harness.Level {
	for _, l := range []harness.Level{harness.Unsupported, harness.Emulated} {
		if a == l || b == l {
			return l
		}
	}
	return harness.Native
}

// seen gives what fixtures have seen of each key that they judge. passed has the
// findings of each, once for every way over which it has passed.
func seen(all []fixture, passed map[string][]levels, ways int) map[string]judgement {
	out := map[string]judgement{}
	for _, f := range all {
		for _, key := range f.keys {
			j, judged := out[key]
			if !judged {
				j.level = harness.Native
			}
			for _, found := range passed[f.name] {
				if l, told := found[key]; told {
					j.level = weaker(j.level, l)
				}
			}
			if len(passed[f.name]) != ways {
				j.level = harness.Unsupported
			}
			j.evidence = append(j.evidence, "conformance/"+f.name)
			out[key] = j
		}
	}
	return out
}

// compare fails on every claim that is not what was seen, and where it would not
// notice another claim.
func compare(t *testing.T, s Setup, all []fixture, passed map[string][]levels) {
	t.Helper()
	claims := s.New(t, t.TempDir(), slog.New(slog.DiscardHandler)).Descriptor().Capabilities
	judged := seen(all, passed, len(s.Over))
	for _, p := range problems(claims, judged) {
		t.Error(p)
	}
	if t.Failed() {
		return
	}
	for key, was := range claims {
		for _, other := range otherClaims(was, judged[key]) {
			changed := maps.Clone(claims)
			changed[key] = other
			if p := problems(changed, judged); len(p) != 1 {
				t.Errorf("%s as %+v in place of %+v has the problems %q", key, other, was, p)
			}
		}
	}
}

// otherClaims are all other levels that could be claimed, each in good form.
func otherClaims(was harness.Capability, j judgement) []harness.Capability {
	var out []harness.Capability
	for _, l := range []harness.Level{harness.Native, harness.Emulated, harness.Unsupported, harness.Unavailable} {
		c := harness.Capability{Level: l, Reason: "another"}
		if l == harness.Native || l == harness.Emulated {
			c = harness.Capability{Level: l, EvidenceID: was.EvidenceID}
			if c.EvidenceID == "" && len(j.evidence) > 0 {
				c.EvidenceID = j.evidence[0]
			}
		}
		if l != was.Level {
			out = append(out, c)
		}
	}
	return out
}

// problems are what is wrong with claims, given what fixtures have judged. What is
// judged elsewhere has its level there.
func problems(claims harness.Capabilities, judged map[string]judgement) []string {
	var out []string
	wrong := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, key := range harness.CapabilityKeys() {
		c, claimed := claims[key]
		j, here := judged[key]
		other, there := elsewhere()[key]
		if there {
			j = other
		}
		has := j.level == harness.Native || j.level == harness.Emulated
		switch {
		case here == there:
			wrong("%s has no judge, or two", key)
		case !claimed:
			wrong("%s has no level", key)
		case c.Level != j.level:
			wrong("%s is said to be %s, and what was seen is %s", key, c.Level, j.level)
		case has && !slices.Contains(j.evidence, c.EvidenceID):
			wrong("%s names the evidence %q, and it was seen by %q", key, c.EvidenceID, j.evidence)
		case !has && c.Reason == "":
			wrong("%s is %s, without a reason", key, c.Level)
		}
	}
	for key := range claims {
		if !slices.Contains(harness.CapabilityKeys(), key) {
			wrong("%s is no capability of the contract", key)
		}
	}
	return out
}
