//go:build cluster

package installation

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// explained is how many lines of each service are shown.
const explained = 40

// explain shows what the services warned of during a test that failed, from the logs that the node keeps.
func (i *Installation) explain(t testing.TB) {
	t.Helper()
	begun := time.Now()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		files, err := filepath.Glob(filepath.Join(os.Getenv("CLUSTER_STATE"), "node/logs", System+"_*", "*", "*.log"))
		if err != nil {
			t.Error(err)
		}
		for _, file := range files {
			log, err := os.ReadFile(file)
			if err != nil {
				continue // the pod has gone meanwhile
			}
			if lines := warnings(log, begun); len(lines) > 0 {
				t.Logf("%s warned:\n%s", filepath.Base(filepath.Dir(file)), strings.Join(lines, "\n"))
			}
		}
	})
}

// warnings are the last lines of a log that are warnings or worse and not older than a time. The node begins each with the
// time, the stream and a tag.
func warnings(log []byte, since time.Time) (lines []string) {
	for s := bufio.NewScanner(bytes.NewReader(log)); s.Scan(); {
		stamp, rest, _ := strings.Cut(s.Text(), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil || at.Before(since) || !strings.Contains(rest, `"level":"WARN"`) && !strings.Contains(rest, `"level":"ERROR"`) {
			continue
		}
		_, line, _ := strings.Cut(rest, "{")
		lines = append(lines, "{"+line)
	}
	return lines[max(0, len(lines)-explained):]
}
