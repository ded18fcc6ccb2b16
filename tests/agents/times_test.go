package agents

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// times are how long the runs of the tests took, from the commit of the start to
// the terminal.
var times timetable

type timetable struct {
	mu   sync.Mutex
	rows map[string][]string
}

func (t *timetable) add(agentID, what string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = map[string][]string{}
	}
	key := fmt.Sprintf("%-16s %s", agentID, what)
	t.rows[key] = append(t.rows[key], fmt.Sprintf("%.1f", took.Seconds()))
}

// String has a line for each agent and test, with the seconds of its runs.
func (t *timetable) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(t.rows)) {
		fmt.Fprintf(&b, "seconds of the runs: %-60s %s\n", key, strings.Join(t.rows[key], " "))
	}
	return b.String()
}
