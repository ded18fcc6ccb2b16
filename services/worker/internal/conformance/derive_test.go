package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/services/worker/internal/harness"
)

// all passed over both ways, each having seen what a harness does itself.
func allPassed() map[string][]levels {
	passed := map[string][]levels{}
	for _, f := range fixtures() {
		for range Ways() {
			passed[f.name] = append(passed[f.name], levels{})
		}
	}
	return passed
}

// right are the claims that were seen.
func right(judged map[string]judgement) harness.Capabilities {
	out := harness.Capabilities{}
	for _, from := range []map[string]judgement{judged, elsewhere()} {
		for key, j := range from {
			out[key] = harness.Capability{Level: j.level, EvidenceID: j.evidence[0]}
			if j.level == harness.Unsupported {
				out[key] = harness.Lacks("a reason")
			}
		}
	}
	return out
}

// Every key has a judge, and every level but the one that was seen is noticed, for
// each key and each level that can be seen.
func TestEveryOtherLevelIsNoticed(t *testing.T) {
	t.Parallel()
	all := fixtures()
	for _, key := range harness.CapabilityKeys() {
		for _, was := range []harness.Level{harness.Native, harness.Emulated, harness.Unsupported} {
			if e, there := elsewhere()[key]; there && e.level != was {
				continue
			}
			passed := allPassed()
			for _, f := range all {
				if slices.Contains(f.keys, key) {
					passed[f.name][1][key] = was // over one way only
				}
			}
			judged := seen(all, passed, len(Ways()))
			claims := right(judged)
			if p := problems(claims, judged); len(p) > 0 {
				t.Fatalf("what was seen and claimed has problems: %q", p)
			}
			if claims[key].Level != was {
				t.Errorf("%s was seen as %s, and is judged as %s", key, was, claims[key].Level)
			}
			others := otherClaims(claims[key], judged[key])
			if len(others) != 3 {
				t.Fatalf("%s: %+v", key, others)
			}
			for _, other := range others {
				claims[key] = other
				if p := problems(claims, judged); len(p) != 1 || !strings.HasPrefix(p[0], key+" ") {
					t.Errorf("%s as %s, and seen as %s: %q", key, other.Level, was, p)
				}
			}
		}
	}
}

// A fixture that has not passed over a way shows nothing, whatever the others of
// its key have seen.
func TestWhatHasNotPassedIsUnsupported(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures() {
		passed := allPassed()
		passed[f.name] = passed[f.name][1:]
		for _, key := range f.keys {
			if j := seen(fixtures(), passed, len(Ways()))[key]; j.level != harness.Unsupported {
				t.Errorf("without %q %s is %s", f.name, key, j.level)
			}
		}
	}
}

// What else is wrong with a descriptor, or with the suite.
func TestProblems(t *testing.T) {
	t.Parallel()
	everything := seen(fixtures(), allPassed(), len(Ways()))
	for name, c := range map[string]struct {
		change func(harness.Capabilities)
		judged func(map[string]judgement)
		says   string
	}{
		"no level":     {func(c harness.Capabilities) { delete(c, "skills") }, nil, "skills has no level"},
		"no evidence":  {func(c harness.Capabilities) { c["stream.text"] = harness.Capability{Level: harness.Native} }, nil, `stream.text names the evidence ""`},
		"another's":    {func(c harness.Capabilities) { c["stream.text"] = harness.ByFixture(harness.Native, "form", "") }, nil, `stream.text names the evidence "conformance/form"`},
		"no reason":    {func(c harness.Capabilities) { c["skills"] = harness.Lacks("") }, func(j map[string]judgement) { j["skills"] = judgement{level: harness.Unsupported} }, "skills is unsupported, without a reason"},
		"odd level":    {func(c harness.Capabilities) { c["skills"] = harness.Capability{Level: "certified"} }, nil, "skills is said to be certified"},
		"unknown key":  {func(c harness.Capabilities) { c["stream.smell"] = c["stream.text"] }, nil, "stream.smell is no capability of the contract"},
		"nobody looks": {nil, func(j map[string]judgement) { delete(j, "skills") }, "skills has no judge"},
		"two judge":    {nil, func(j map[string]judgement) { j["runtime.sandbox_isolation"] = j["skills"] }, "runtime.sandbox_isolation has no judge, or two"},
		"another's outside": {func(c harness.Capabilities) {
			c["runtime.sandbox_isolation"] = harness.ByTest(harness.Emulated, "tests/escape", "TestNothing", "")
		}, nil, "runtime.sandbox_isolation names the evidence"},
	} {
		claims, judged := right(everything), maps.Clone(everything)
		if c.change != nil {
			c.change(claims)
		}
		if c.judged != nil {
			c.judged(judged)
		}
		if p := problems(claims, judged); len(p) != 1 || !strings.HasPrefix(p[0], c.says) {
			t.Errorf("%s: %q", name, p)
		}
	}
}

// The tests that judge what a worker cannot show are there.
func TestWhatIsJudgedElsewhereIs(t *testing.T) {
	t.Parallel()
	for key, j := range elsewhere() {
		for _, evidence := range j.evidence {
			folder, test := path.Split(evidence)
			if !declares(t, "../../../../"+folder, test) {
				t.Errorf("%s: there is no %s in %s", key, test, folder)
			}
		}
	}
}

func declares(t *testing.T, folder, test string) bool {
	t.Helper()
	files, err := filepath.Glob(folder + "*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(name string) bool {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
			fn, ok := d.(*ast.FuncDecl)
			return ok && fn.Name.Name == test
		})
	})
}

// A fixture has a name of its own, and does something.
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
