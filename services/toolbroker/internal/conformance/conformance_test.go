package conformance

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/services/toolbroker/internal/npmpeers"
)

// least is how many scenarios each revision's set has at least: fewer would mean
// that the suite did not do what it was asked for.
var least = map[string]int{"2025-11-25": 25, "2026-07-28": 39}

// verdict is a line of the suite's summary.
var verdict = regexp.MustCompile(`^(✓|✗) ([a-z0-9_./-]+): \d+ passed, \d+ failed`)

// The suite's client scenarios pass, each revision's in the revision's own wire
// format, but for those that are known to fail; and those do fail.
func TestTheSuitesClientScenarios(t *testing.T) {
	t.Parallel()
	peers := npmpeers.Need(t)
	for revision, n := range least {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			known := knownFailing(t, revision)
			passed, output := run(t, peers, revision)
			if len(passed) < n {
				t.Fatalf("the suite ran %d scenarios, not %d:\n%s", len(passed), n, output)
			}
			for scenario, ok := range passed {
				switch {
				case !ok && known[scenario] == "":
					// The suite starts all of them at once, with time limits of its own: on a
					// small machine one is judged by itself.
					if alone, output := runOne(t, peers, revision, scenario); !alone {
						t.Errorf("%s fails, also by itself:\n%s", scenario, output)
					}
					t.Logf("WARNING: %s failed among the others", scenario)
				case ok && known[scenario] != "":
					t.Errorf("%s passes: take it out of testdata/known-failing-%s.txt", scenario, revision)
				}
			}
			for scenario := range known {
				if _, there := passed[scenario]; !there {
					t.Errorf("%s is known to fail and was not run", scenario)
				}
			}
			if t.Failed() {
				t.Logf("%s", output)
			}
		})
	}
}

// run runs the scenarios that a revision requires, and those that its set only
// reports.
func run(t *testing.T, peers npmpeers.Peers, revision string) (passed map[string]bool, output []byte) {
	t.Helper()
	output = suite(t, peers, "--requirements", revision)
	passed = map[string]bool{}
	for line := range bytes.Lines(output) {
		if m := verdict.FindStringSubmatch(string(line)); m != nil {
			passed[m[2]] = m[1] == "✓"
		}
	}
	return passed, output
}

// runOne runs one scenario alone.
func runOne(t *testing.T, peers npmpeers.Peers, revision, scenario string) (passed bool, output []byte) {
	t.Helper()
	output = suite(t, peers, "--scenario", scenario, "--spec-version", revision)
	return bytes.Contains(output, []byte("OVERALL: PASSED")), output
}

// suite runs the suite's command for clients, and gives what it prints.
func suite(t *testing.T, peers npmpeers.Peers, args ...string) []byte {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, peers.Node(),
		append([]string{peers.Module("conformance", "dist/index.js"), "client", "--command", self + " " + asClient, "--timeout", "60000", "--output-dir", t.TempDir()}, args...)...)
	// Nothing of this process's environment: Go's runtime looks at some of it.
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir()}
	output, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed || ctx.Err() != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return output
}

// knownFailing has the reason for each scenario that is known to fail: the comment
// that stands above it.
func knownFailing(t *testing.T, revision string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("testdata/known-failing-" + revision + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	known, reason := map[string]string{}, ""
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			reason = ""
		case strings.HasPrefix(line, "#"):
			reason += strings.TrimPrefix(line, "#")
		case reason == "":
			t.Fatalf("%s is said to fail without a reason", line)
		default:
			known[line] = reason
		}
	}
	return known
}
