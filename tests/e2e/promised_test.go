package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Kinds of runs in the table of docs/protocol.md.
const (
	ofTurn     = "turn"
	ofQuestion = "question"
	ofAnswer   = "answer"
)

// promise is what docs/protocol.md says of a run whose worker dies at a step.
type promise struct {
	// ends and effects are the terminal, and what is known of side effects.
	ends, effects string
	// calls is how often the tool is called, now and ever.
	calls int
	// generation of the run after it.
	generation uint32
}

// promises reads the table, by kind of run and step.
func promises(t *testing.T) map[[2]string]promise {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(raw), "\n## When a worker dies\n")
	if !ok {
		t.Fatal("docs/protocol.md has no section on workers that die")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	out := map[[2]string]promise{}
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| Run |") || strings.HasPrefix(line, "|---") {
			continue
		}
		key, p, err := promised(line)
		if _, twice := out[key]; err != nil || twice {
			t.Fatalf("row %q: twice: %v, %v", line, twice, err)
		}
		out[key] = p
	}
	return out
}

// promised reads one row.
func promised(row string) (key [2]string, p promise, err error) {
	cells := strings.Split(strings.Trim(row, "|"), "|")
	if len(cells) != 7 {
		return key, p, fmt.Errorf("%d cells", len(cells))
	}
	for i := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "`", ""))
	}
	generation, err := strconv.ParseUint(cells[5], 10, 32)
	if err != nil {
		return key, p, err
	}
	p = promise{ends: cells[2], effects: cells[3], generation: uint32(generation)}
	p.calls, err = strconv.Atoi(cells[4])
	return [2]string{cells[0], cells[1]}, p, err
}

// of gives what is promised for a step.
func of(t *testing.T, run, step string) promise {
	t.Helper()
	p, ok := promises(t)[[2]string{run, step}]
	if !ok {
		t.Fatalf("docs/protocol.md promises nothing for a %s that dies %s", run, step)
	}
	return p
}

// What is promised is played, and what is played is promised.
func TestEachDeathIsPromised(t *testing.T) {
	var played [][2]string
	for run, deaths := range map[string][]death{ofTurn: turnDeaths(), ofAnswer: answerDeaths()} {
		for _, d := range deaths {
			played = append(played, [2]string{run, d.step})
		}
	}
	for _, step := range questionSteps() {
		played = append(played, [2]string{ofQuestion, step})
	}
	table := promises(t)
	for key := range table {
		if !slices.Contains(played, key) {
			t.Errorf("no test kills the worker of a %s %s", key[0], key[1])
		}
	}
	for _, key := range played {
		if p, ok := table[key]; !ok || p.ends == "" || p.effects == "" {
			t.Errorf("docs/protocol.md does not say what comes of a %s whose worker dies %s", key[0], key[1])
		}
	}
}
