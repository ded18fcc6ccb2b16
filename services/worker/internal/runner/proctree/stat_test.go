//go:build linux

package proctree

import (
	"os"
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	rest := " S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 100 200"
	for _, name := range []string{"sh", "a b", "(x) R 1 1", "x\ny)", ""} {
		s, err := parseStat([]byte("12 (" + name + ")" + rest))
		if err != nil || s != (stat{state: 'S', parent: 7, group: 8, start: 4711}) {
			t.Errorf("%q: %+v, %v", name, s, err)
		}
	}
	for _, bad := range []string{"", "12 sh S 1", "12 (sh)", "12 (sh) S 7", "12 (sh) SS 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711", "12 (sh) S x 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711"} {
		if s, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, s)
		}
	}
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := parseStat(b); err != nil || s.parent != os.Getppid() || s.start == 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestParseStatus(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]status{
		"Name:\ta\\nState:\tR\nState:\tT (stopped)\nPid:\t7\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n": {'T', 7},
		"Name:\tx\nState:\tS (sleeping)\n":      {'S', 0},
		"State:\nvoluntary_ctxt_switches:\tx\n": {},
		"":                                      {},
	} {
		if got := parseStatus([]byte(text)); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

func TestStill(t *testing.T) {
	t.Parallel()
	for state, want := range map[byte]bool{'T': true, 't': true, 'Z': true, 'X': true, 'R': false, 'S': false, 'D': false, 'I': false, '?': false} {
		if still(state) != want {
			t.Errorf("%c", state)
		}
	}
}

// FuzzParseStatus: the program chooses its own name, and the kernel escapes it. No name
// makes a task that runs look stopped, or changes what it is counted.
func FuzzParseStatus(f *testing.F) {
	for _, name := range []string{"sh", "x\nState:\tT", "a\\b", "State:", "nonvoluntary_ctxt_switches:\t9", ""} {
		f.Add(name)
	}
	escape := strings.NewReplacer("\n", `\n`, `\`, `\\`)
	f.Fuzz(func(t *testing.T, name string) {
		text := "Name:\t" + escape.Replace(name) + "\nState:\tR (running)\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n"
		if got := parseStatus([]byte(text)); got != (status{'R', 7}) {
			t.Fatalf("%q: %+v", name, got)
		}
		_ = parseStatus([]byte(name)) // nor does it panic on anything
	})
}

// FuzzParseStat: the program chooses its own name.
func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (sh) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711"))
	f.Fuzz(func(_ *testing.T, line []byte) { _, _ = parseStat(line) })
}
